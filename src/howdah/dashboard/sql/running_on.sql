-- running_on: the jobs a node holds, oldest claims first.
-- in:  $1 node int, $2 rows int
-- out: id, kind, queue, attempt, claimed_at, expires_at, share (of its progress, or null), note

select j.id, j.kind, j.queue, held.attempt, held.claimed_at, held.expires_at, p.share, p.note
from (
    select l.claimed_at, l.expires_at, run.attempt, id
    from {schema}.lease l
    cross join lateral unnest(l.los, l.his, l.attempts) run(lo, hi, attempt)
    cross join lateral generate_series(run.lo, run.hi - 1) id
    where l.node = $1
      and not exists (select from {schema}.done d where d.id = id)
      and not exists (select from {schema}.gone g where g.token = l.token and g.id = id)
    order by l.token, id
    limit $2
) held
join {schema}.job j on j.id = held.id
left join {schema}.progress p on p.id = held.id
order by held.claimed_at, j.id
