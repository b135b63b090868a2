-- doctor_dead: what vacuum leaves in our tables.
-- in:  $1 schema text
-- out: name, quoted (with its schema), live, dead, disabled, switched_on (for the whole server), bytes (with its indexes),
--      brief (its rows come and go); the worst first
--
-- Live rows are what was counted or, when the counters were lost in a crash, what the last vacuum saw.

select c.relname::text as name, format('%I.%I', n.nspname, c.relname) as quoted,
    greatest(s.n_live_tup, c.reltuples)::int8 as live, s.n_dead_tup as dead,
    coalesce('autovacuum_enabled=false' = any(c.reloptions) or 'autovacuum_enabled=off' = any(c.reloptions), false) as disabled,
    current_setting('autovacuum') = 'on' as switched_on,
    pg_total_relation_size(c.oid) as bytes,
    c.relname in ('ready', 'later', 'lease', 'gone', 'job_key', 'cancel_request', 'progress', 'node', 'consumer_partition', 'checkpoint',
        'leader') and c.reltuples >= 0 as brief
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_stat_all_tables s on s.relid = c.oid
where n.nspname = $1
  and c.relkind = 'r'
order by s.n_dead_tup desc, c.relname
