-- schedule_due: lock the schedules that fall due soon; those another node is at are left to it.
-- in:  $1 names text[], $2 how soon interval
-- out: name, next_at, now

select name, next_at, clock_timestamp() as now
from {schema}.schedule
where name = any($1::text[])
  and not paused
  and next_at <= clock_timestamp() + $2::interval
order by name
for update skip locked
