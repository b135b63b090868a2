-- doctor_horizon: who keeps dead rows from being removed.
-- in:  $1 seconds float8
-- out: what, who, age (seconds, null for a slot), behind (transactions), doing; the oldest first

select *
from (
    select 'transaction' as what, format('pid %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename, '?')) as who,
        extract(epoch from clock_timestamp() - a.xact_start)::float8 as age,
        age(coalesce(a.backend_xmin, a.backend_xid))::int8 as behind,
        format('%s: %s', a.state, left(a.query, 500)) as doing
    from pg_stat_activity a
    where a.xact_start < clock_timestamp() - $1::float8 * interval '1 second'
      and (a.backend_xmin is not null or a.backend_xid is not null)
      and a.backend_type in ('client backend', 'walsender', 'background worker')
      and a.pid <> pg_backend_pid()
    union all
    select 'prepared transaction', p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8, age(p.transaction)::int8,
        format('prepared by %s', p.owner)
    from pg_prepared_xacts p
    where p.prepared < clock_timestamp() - $1::float8 * interval '1 second'
    union all
    select 'replication slot', s.slot_name, null, greatest(age(s.xmin), age(s.catalog_xmin))::int8,
        case when s.active then 'active' else 'nobody reads it' end
    from pg_replication_slots s
    where greatest(age(s.xmin), age(s.catalog_xmin)) > 100000
) holders
order by behind desc nulls last
limit 5
