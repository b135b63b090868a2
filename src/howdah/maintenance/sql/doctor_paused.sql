-- doctor_paused: paused queues in which jobs wait.
-- out: name, age (seconds since it was paused), paused_by, jobs (ready ones)

select q.name, extract(epoch from clock_timestamp() - q.paused_at)::float8 as age, q.paused_by,
    (select coalesce(sum(r.hi - r.lo), 0)::int8 from {schema}.ready r where r.queue = q.name) as jobs
from {schema}.queue q
where q.paused
  and (exists (select from {schema}.ready r where r.queue = q.name)
    or exists (select from {schema}.later l where l.queue = q.name and l.due_at <= now()))
order by q.name
