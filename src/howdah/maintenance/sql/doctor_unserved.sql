-- doctor_unserved: jobs that wait although no live node would claim them.
-- in:  $1 seconds of silence float8
-- out: queue, kind, jobs; the most first
--
-- What comes after a + in the name of a queue are labels its jobs require. A node has those it was given, and those in the
-- names of its queues.

select w.queue, w.kind, w.jobs
from (
    select queue, kind, sum(jobs)::int8 as jobs
    from (
        select queue, kind, hi - lo as jobs from {schema}.ready
        union all
        select queue, kind, 1 from {schema}.later where due_at <= now()
    ) waiting
    group by queue, kind
) w
where not exists (
    select from {schema}.node n
    where n.state not in ('offline', 'draining')
      and n.beat_at >= clock_timestamp() - $1::float8 * interval '1 second'
      and (n.queues is null or exists (
            select from unnest(n.queues) q(name) where w.queue = q.name or starts_with(w.queue, q.name || '+')))
      and (string_to_array(w.queue, '+'))[2:] <@ (n.labels || array(
            select label from unnest(n.queues) q(name) cross join unnest((string_to_array(q.name, '+'))[2:]) l(label)))
      and (n.kinds is null or w.kind = any(n.kinds)))
order by w.jobs desc
limit 20
