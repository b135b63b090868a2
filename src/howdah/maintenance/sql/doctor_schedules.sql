-- doctor_schedules: schedules that cannot be fired, are overdue, or are declared in more than one way.
-- in:  $1 seconds since a node was seen float8, $2 seconds a slot may be overdue float8
-- out: name, error, failing (seconds), overdue (seconds, or null), declared (each way, as kind and cron)

select s.name, s.error, extract(epoch from clock_timestamp() - s.failed_at)::float8 as failing,
    case when not s.paused and s.slot_at < clock_timestamp() - $2::float8 * interval '1 second' and cardinality(ways.declared) > 0
        then extract(epoch from clock_timestamp() - s.slot_at)::float8 end as overdue,
    ways.declared
from {schema}.schedule s
cross join lateral (
    select array(
        select format('%s at %s %s', d.kind, d.cron, d.zone)
        from {schema}.schedule_declaration d
        where d.name = s.name
          and d.seen_at > clock_timestamp() - $1::float8 * interval '1 second'
        order by d.withdrawn, d.declared_at desc) as declared
) ways
where s.error is not null
   or cardinality(ways.declared) > 1
   or (not s.paused and s.slot_at < clock_timestamp() - $2 * interval '1 second' and cardinality(ways.declared) > 0)
order by s.name
limit 20
