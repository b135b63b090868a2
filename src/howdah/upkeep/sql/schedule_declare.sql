-- schedule_declare: make a schedule known; one that says the same as before keeps its place.
-- in:  $1 name, $2 kind, $3 cron, $4 zone, $5 the next slot timestamptz

insert into {schema}.schedule as s (name, kind, cron, zone, next_at)
values ($1, $2, $3, $4, $5)
on conflict (name) do update
set kind = excluded.kind,
    cron = excluded.cron,
    zone = excluded.zone,
    next_at = case when s.cron = excluded.cron and s.zone = excluded.zone then s.next_at else excluded.next_at end
where (s.kind, s.cron, s.zone) is distinct from (excluded.kind, excluded.cron, excluded.zone)
