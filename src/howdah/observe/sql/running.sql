-- running: the jobs that have been under lease for longest.
-- in:  $1 rows int
-- out: the fields of RunningJob
--
-- Lease by lease, oldest first, and no further than needed. OFFSET 0 keeps the probes probes: as joins they may read all
-- of history.

select held.id, job.kind, job.queue, held.attempt, held.node, n.name as node_name,
    extract(epoch from clock_timestamp() - held.claimed_at)::float8 as seconds, p.share, p.note
from (
    select i.id, run.attempt, lease.token, lease.node, lease.claimed_at
    from (select * from {schema}.lease order by claimed_at, token) lease
    cross join lateral unnest(lease.los, lease.his, lease.attempts) run(lo, hi, attempt)
    cross join lateral generate_series(run.lo, run.hi - 1) i(id)
    where not exists (select from {schema}.done d where d.id = i.id offset 0)
      and not exists (select from {schema}.gone g where g.token = lease.token and g.id = i.id offset 0)
    limit $1
) held
cross join lateral (select j.kind, j.queue from {schema}.job j where j.id = held.id offset 0) job
left join {schema}.node n on n.id = held.node
left join {schema}.progress p on p.id = held.id and p.token = held.token
order by held.claimed_at, held.id
