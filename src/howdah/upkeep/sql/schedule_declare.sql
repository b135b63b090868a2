-- schedule_declare: say which schedules a node has, and how it declares each; forget declarations no node has any more.
-- in:  $1 names text[], $2 declarations text[], $3 kinds text[], $4 crons text[], $5 zones text[], $6 when to forget interval
--
-- The moment is not written anew when another node has just done so. A row of a schedule starts without a declaration in
-- force, and at infinity for nodes that look at next_at.

with mine as materialized (
    select name, declaration, kind, cron, zone
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) x(name, declaration, kind, cron, zone)
),
said as (
    insert into {schema}.schedule_declaration as d (name, declaration, kind, cron, zone)
    select name, declaration, kind, cron, zone from mine order by name
    on conflict (name, declaration) do update
    set seen_at = clock_timestamp(),
        declared_at = case when d.seen_at < clock_timestamp() - $6::interval then clock_timestamp() else d.declared_at end
    where d.seen_at < clock_timestamp() - interval '3 seconds'
),
known as (
    insert into {schema}.schedule (name, kind, cron, zone, next_at)
    select m.name, m.kind, m.cron, m.zone, 'infinity'
    from mine m
    where not exists (select from {schema}.schedule s where s.name = m.name)
    order by m.name
    on conflict do nothing
)
delete from {schema}.schedule_declaration d
where d.seen_at < clock_timestamp() - $6::interval
  and not (d.name, d.declaration) in (select name, declaration from mine)
