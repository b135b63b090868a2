-- log: how far the log goes, how far it can be read, and for how long the oldest append has been open.
-- out: head, frontier, age (seconds; 0: none is open)

select f.head, f.safe as frontier, coalesce((
    select extract(epoch from clock_timestamp() - min(coalesce(a.xact_start, x.prepared)))::float8
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_prepared_xacts x on l.virtualtransaction = '-1/' || x.transaction::text
    where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.classid = {'schema.event'}::regclass::oid
      and l.database = (select d.oid from pg_database d where d.datname = current_database())), 0) as age
from {schema}.frontier() f
