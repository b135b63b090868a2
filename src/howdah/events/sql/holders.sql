-- holders: the open appends, the one that holds the frontier back first.
-- in:  $1 limit
-- out: the fields of Holder

select t.above, t.pid, a.application_name as application, a.usename::text as role, a.state,
    coalesce(extract(epoch from clock_timestamp() - coalesce(a.xact_start, x.prepared))::float8, 0) as age,
    a.query, x.gid as prepared
from (
    select min(l.pid) as pid, l.virtualtransaction as owner,
        (coalesce(min(l.objid::bigint) filter (where l.classid = {'schema.event_position_seq'}::regclass::oid), 0) << 32)
        + coalesce(min(l.objid::bigint) filter (where l.classid = {'schema.event'}::regclass::oid), 0) as above
    from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock'
      and l.classid in ({'schema.event'}::regclass::oid, {'schema.event_position_seq'}::regclass::oid)
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
    group by l.virtualtransaction) t
left join pg_stat_activity a on a.pid = t.pid
-- a prepared transaction keeps the virtual id of the session that prepared it, so its own id is found by its other locks
left join pg_prepared_xacts x on t.pid is null and exists (
    select from pg_locks l
    where l.locktype = 'transactionid' and l.pid is null and l.virtualtransaction = t.owner
      and l.transactionid = x.transaction)
order by t.above, age desc
limit $1
