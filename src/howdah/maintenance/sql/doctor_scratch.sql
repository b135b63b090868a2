-- doctor_scratch: lets this transaction write its temporary files where the newest jobs are kept, and soon.
-- in:  $1 statement_timeout in milliseconds text
-- out: nothing of interest
--
-- The tablespace of the newest partition, if it has one of its own and this role may write there.

select set_config('statement_timeout', $1, true), set_config('work_mem', '64kB', true),
    set_config('temp_tablespaces', coalesce((
        select quote_ident(t.spcname)
        from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_tablespace t on t.oid = c.reltablespace
        where i.inhparent = {'schema.job'}::regclass and has_tablespace_privilege(t.oid, 'create')
        order by c.oid desc limit 1), ''), true)
