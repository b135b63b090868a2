-- locked: the open transaction that has locked the place of a waiting job; a claim passes by what is locked.
-- in:  $1 id int8
-- out: pid, application, role, state, age (seconds), query, prepared (the name of a prepared transaction); or nothing

select a.pid, a.application_name as application, a.usename::text as role, a.state, a.query, x.gid as prepared,
    coalesce(extract(epoch from clock_timestamp() - coalesce(a.xact_start, x.prepared))::float8, 0) as age
from (
    select z.locker
    from (select y.lo, y.xmax as locker from {schema}.ready y where y.hi > $1::int8 order by y.hi limit 1) z
    where z.lo <= $1::int8
    union all
    select l.xmax from {schema}.later l where l.id = $1
) place
join pg_locks k on k.locktype = 'transactionid' and k.transactionid = place.locker and k.mode = 'ExclusiveLock' and k.granted
left join pg_stat_activity a on a.pid = k.pid
left join pg_prepared_xacts x on x.transaction = k.transactionid
limit 1
