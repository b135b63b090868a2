-- schedule_declare: say which schedules a node has, and how it declares each; forget declarations no node has any more.
-- in:  $1 names text[], $2 declarations text[], $3 kinds text[], $4 crons text[], $5 zones text[], $6 when to forget interval,
--      $7 when each was first declared timestamptz[]; null: the process has just started
--
-- The moment is not written anew when another node has just done so. A row of a schedule starts without a declaration in
-- force. A declaration that comes back is a new one only when a process starts with it, not when a process was frozen. It
-- is later than all others also when the clock of the server went back.

with mine as materialized (
    select x.name, x.declaration, x.kind, x.cron, x.zone, x.since,
        coalesce(x.since, greatest(clock_timestamp(), (
            select max(o.declared_at) + interval '1 microsecond' from {schema}.schedule_declaration o where o.name = x.name
        ))) as declared_at
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $7::timestamptz[])
        x(name, declaration, kind, cron, zone, since)
),
declared as (
    insert into {schema}.schedule_declaration as d (name, declaration, kind, cron, zone, declared_at)
    select name, declaration, kind, cron, zone, declared_at from mine order by name
    on conflict (name, declaration) do update
    set seen_at = clock_timestamp(),
        declared_at = case when d.seen_at < clock_timestamp() - $6::interval then excluded.declared_at else d.declared_at end,
        withdrawn = d.withdrawn and exists (select from mine m where m.name = d.name and m.since is not null)
    where d.seen_at not between clock_timestamp() - interval '3 seconds' and clock_timestamp() + interval '3 seconds'
       or (d.withdrawn and exists (select from mine m where m.name = d.name and m.since is null))
),
known as (
    insert into {schema}.schedule (name, kind, cron, zone)
    select m.name, m.kind, m.cron, m.zone
    from mine m
    where not exists (select from {schema}.schedule s where s.name = m.name)
    order by m.name
    on conflict do nothing
)
delete from {schema}.schedule_declaration d
where d.seen_at < clock_timestamp() - $6::interval
  and not (d.name, d.declaration) in (select name, declaration from mine)
