-- doctor_horizon: sessions and slots that keep dead rows, or WAL, from being removed.
-- in:  $1 seconds a transaction may last float8, $2 transactions a slot may be behind int8, $3 bytes a slot may keep int8
-- out: what, who, pid (or null), age (seconds, null for a slot), kept (bytes of the server's log), doing; the oldest first
--
-- Transactions in other databases hold nothing back here.

select what, who, pid, age, kept, doing
from (
    select 'transaction' as what, format('pid %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename, '?')) as who,
        a.pid, extract(epoch from clock_timestamp() - a.xact_start)::float8 as age, null::int8 as kept,
        format('%s: %s', a.state, left(a.query, 500)) as doing, age(coalesce(a.backend_xmin, a.backend_xid))::int8 as behind
    from pg_stat_activity a
    where a.xact_start < clock_timestamp() - $1::float8 * interval '1 second'
      and (a.backend_xmin is not null or a.backend_xid is not null)
      and a.backend_type in ('client backend', 'walsender', 'background worker')
      and (a.datname = current_database() or a.datname is null)
      and a.pid <> pg_backend_pid()
    union all
    select 'prepared transaction', p.gid, null, extract(epoch from clock_timestamp() - p.prepared)::float8, null,
        format('prepared by %s', p.owner), age(p.transaction)::int8
    from pg_prepared_xacts p
    where p.prepared < clock_timestamp() - $1::float8 * interval '1 second'
      and p.database = current_database()
    union all
    select 'replication slot', s.slot_name::text, s.active_pid, null, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::int8,
        case when s.active then 'a client reads it, slowly' else 'no client reads it' end,
        greatest(age(s.xmin), age(s.catalog_xmin))::int8
    from pg_replication_slots s
    where greatest(age(s.xmin), age(s.catalog_xmin)) > $2::int8
       or pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) > $3::int8
) holders
order by behind desc nulls last
limit 5
