-- queues: what every queue holds, and how old the job at its head is; last the shop's own table.

select q.name as name, coalesce(r.jobs, 0)::int8 as ready, coalesce(l.jobs, 0)::int8 as later,
    extract(epoch from clock_timestamp() - coalesce(j.run_at, j.enqueued_at))::float8 as oldest
from (select distinct queue as name from {schema}.lane) q
left join (select queue, sum(hi - lo) as jobs, min(lo) as lo from {schema}.ready group by queue) r on r.queue = q.name
left join (select queue, count(*) as jobs from {schema}.later group by queue) l on l.queue = q.name
left join {schema}.job j on j.id = r.lo
union all
select 'photos (table)', count(*) filter (where p.due), count(*) filter (where not p.due),
    extract(epoch from clock_timestamp() - min(p.since) filter (where p.due))::float8
from (
    select coalesce(process_after, queued_at) as since, coalesce(process_after <= now(), true) as due
    from {shop}.photos
    where state in ('queued', 'errored')
) p
order by name
