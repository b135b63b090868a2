-- failures: the newest failed jobs, grouped by what their errors have in common.
-- in:  $1 failed jobs to look at int, $2 not older than seconds float8 or null, $3 queue, $4 kind (each text or null), $5 groups int
-- out: kind, error (its class, or null), fingerprint, message (of the example), count, first_at, last_at, example (id), queues;
--      the same in each row: looked (at how many jobs), oldest (when the oldest of them failed), groups (how many there are);
--      a row without a kind when there is no group
--
-- `state <> 'd'` is what the partial index done_bad says. OFFSET 0 keeps the probe a probe: as a join it may read all of
-- history.

with newest as materialized (
    select d.id, d.finished_at, d.error
    from {schema}.done d
    where d.state <> 'd'
      and d.state = 'f'
    order by d.id desc
    limit $1
),
failed as materialized (
    select n.id, n.finished_at, left(coalesce(n.error, ''), 500) as error,
        {schema}.fingerprint(coalesce(n.error, '')) as fingerprint, j.kind, j.queue
    from newest n
    cross join lateral (select kind, queue from {schema}.job j where j.id = n.id offset 0) j
    where ($2::float8 is null or n.finished_at > now() - $2 * interval '1 second')
      and ($3::text is null or j.queue = $3)
      and ($4::text is null or j.kind = $4)
),
grouped as (
    select kind, fingerprint, count(*) as count, min(finished_at) as first_at, max(finished_at) as last_at,
        max(id) as example, (array_agg(distinct queue order by queue))[1:20] as queues
    from failed
    group by kind, fingerprint
)
select g.kind, substring(f.error from '^([A-Za-z_][A-Za-z0-9_.]*): ') as error, g.fingerprint, f.error as message, g.count,
    g.first_at, g.last_at, g.example, g.queues, seen.looked, seen.oldest, count(g.kind) over () as groups
from (select count(*) as looked, min(finished_at) as oldest from newest) seen
left join grouped g on true
left join failed f on f.id = g.example
order by g.count desc, g.last_at desc
limit $5
