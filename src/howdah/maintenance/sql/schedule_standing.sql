-- schedule_standing: of these schedules, those that are to be taken over, or are declared otherwise by other nodes.
-- in:  $1 names text[], $2 declarations text[], $3 how long ago a node must have been seen interval
-- out: name, and the current declaration: declaration, kind, cron, zone; older: whether the one in force was declared later

select x.name, best.declaration, best.kind, best.cron, best.zone,
    exists (
        select from {schema}.schedule_declaration d
        where d.name = x.name and d.declaration = s.declaration and d.declared_at > best.declared_at and not d.withdrawn
    ) as older
from unnest($1::text[], $2::text[]) x(name, declaration)
join {schema}.schedule s on s.name = x.name
cross join lateral (
    select d.declaration, d.kind, d.cron, d.zone, d.declared_at
    from {schema}.schedule_declaration d
    where d.name = x.name
      and d.seen_at between clock_timestamp() - $3::interval and clock_timestamp() + $3::interval
    order by d.withdrawn, d.declared_at desc, d.declaration desc
    limit 1
) best
where best.declaration <> x.declaration
   or s.declaration is distinct from x.declaration
order by x.name
