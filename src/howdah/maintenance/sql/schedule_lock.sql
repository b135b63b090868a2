-- schedule_lock: lock a schedule that this declaration is to take over, if it is still the current one.
-- in:  $1 name, $2 declaration text, $3 how long ago a node must have been seen interval
-- out: cron, zone, slot_at (null: never fired), last_at, now; nothing when another node is at it

select s.cron, s.zone, s.slot_at, s.last_at, clock_timestamp() as now
from {schema}.schedule s
where s.name = $1
  and s.declaration is distinct from $2::text
  and $2 = (
    select d.declaration
    from {schema}.schedule_declaration d
    where d.name = $1
      and d.seen_at between clock_timestamp() - $3::interval and clock_timestamp() + $3::interval
    order by d.withdrawn, d.declared_at desc, d.declaration desc
    limit 1)
for update skip locked
