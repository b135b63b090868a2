-- list_queued: ids of jobs that wait (also scheduled ones and those waiting to retry), newest first.
-- in:  $1 before int8, $2 queue, $3 kind (each text or null), $4 rows int
-- out: id
--
-- Runs do not overlap, so runs by descending end are ids in descending order, and `before` cuts at most one.

with runs as (
    select cut.*
    from (select lo, hi, queue, kind from {schema}.ready where hi > $1 order by hi limit 1) cut
    where ($2::text is null or cut.queue = $2)
      and ($3::text is null or cut.kind = $3)
    union all
    select below.*
    from (
        select lo, hi, queue, kind
        from {schema}.ready
        where hi <= $1
          and ($2::text is null or queue = $2)
          and ($3::text is null or kind = $3)
        order by hi desc
        limit $4
    ) below
)
select i.id
from runs
cross join lateral (select least(runs.hi, $1) as hi) top
cross join lateral generate_series(greatest(runs.lo, top.hi - $4), top.hi - 1) i(id)
union all
select later.id
from (
    select id
    from {schema}.later
    where id < $1
      and ($2::text is null or queue = $2)
      and ($3::text is null or kind = $3)
    order by id desc
    limit $4
) later
order by id desc
limit $4
