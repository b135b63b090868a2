-- schedule_claim: lock a schedule to fire it, if it is due and its current declaration is the caller's.
-- in:  $1 name, $2 declaration, $3 how soon interval
-- out: slot_at, not_before, now; nothing when another node is at it

select slot_at, not_before, clock_timestamp() as now
from {schema}.schedule
where name = $1
  and declaration = $2
  and not paused
  and slot_at <= clock_timestamp() + $3::interval
for update skip locked
