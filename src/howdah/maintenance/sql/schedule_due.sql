-- schedule_due: the schedules that fall due soon, of those whose current declaration is the caller's.
-- in:  $1 names text[], $2 declarations text[], $3 how soon interval[]
-- out: name

select s.name
from unnest($1::text[], $2::text[], $3::interval[]) x(name, declaration, ahead)
join {schema}.schedule s on s.name = x.name
where s.declaration = x.declaration
  and not s.paused
  and s.slot_at <= clock_timestamp() + x.ahead
order by s.slot_at, s.name
