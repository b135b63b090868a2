-- doctor_connections: how full the server is, and how much fuller its nodes can make it.
-- in:  $1 seconds of silence float8
-- out: used, most, groups (who has how many, the most first), nodes (live ones that connect), open (their pools now),
--      pools (as far as these can grow)
--
-- Most roles are not told what kind of process another role's session is, so those count as clients. The pools are as the
-- node and its consumers make them: one connection a slot, from 4 to 20, and two a part and one more, up to 20.

with session as (
    select coalesce(nullif(a.application_name, ''), a.usename::text, '?') as name,
        a.datid = (select d.oid from pg_database d where d.datname = current_database()) as here
    from pg_stat_activity a
    where a.datid is not null
      and coalesce(a.backend_type, 'client backend') = 'client backend'
),
live as (
    select greatest(4, least(n.slots, 20)) + case when parts.count > 0 then least(20, 2 * parts.count + 1) else 0 end as pool
    from {schema}.node n
    cross join lateral (
        select coalesce(sum(each.value::int), 0) as count
        from json_each_text(coalesce(n.consumers, '{}')) each
    ) parts
    where n.state <> 'offline'
      and not n.remote
      and n.beat_at >= clock_timestamp() - $1::float8 * interval '1 second'
)
select (select count(*) from session) as used,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0) as most,
    array(select name || ' ' || count(*) from session group by name order by count(*) desc, name limit 5) as groups,
    (select count(*) from live) as nodes,
    (select count(*) from session where here and name = 'howdah pool') as open,
    (select coalesce(sum(pool), 0) from live)::int8 as pools
