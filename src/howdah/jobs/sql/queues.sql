-- queues: the queues to claim from; adds the pairs of queue and priority of ready jobs that are missing in lane.
-- in:  $1 names text[], or null for all
--      $2 most int
-- out: names   $1, or all in lane, if they are at most $2; otherwise those with ready jobs
--      many    whether they are more than $2
--      added   pairs that were missing
--
-- The names are read from the indexes, from one to the next: queues without jobs cost nothing when there are many.
-- A pair is missing when it was pruned while an enqueue was open that had seen it.

with recursive known as (
    (select l.queue, 1 as n from {schema}.lane l where $1::text[] is null order by l.queue limit 1)
    union all
    select x.queue, k.n + 1
    from known k
    cross join lateral (select l.queue from {schema}.lane l where l.queue > k.queue order by l.queue limit 1) x
    where k.n <= $2::int
),
pairs as (
    (select r.queue, r.priority from {schema}.ready r where $1 is null order by r.queue, r.priority limit 1)
    union all
    (select x.queue, x.priority
     from unnest($1) q
     cross join lateral (select r.queue, r.priority from {schema}.ready r where r.queue = q order by r.priority limit 1) x)
    union all
    select x.queue, x.priority
    from pairs p
    cross join lateral (
        (select r.queue, r.priority from {schema}.ready r
         where $1 is null and (r.queue, r.priority) > (p.queue, p.priority)
         order by r.queue, r.priority limit 1)
        union all
        (select r.queue, r.priority from {schema}.ready r
         where $1 is not null and r.queue = p.queue and r.priority > p.priority
         order by r.priority limit 1)
    ) x
),
added as (
    insert into {schema}.lane
    select p.queue, p.priority from pairs p
    where not exists (select from {schema}.lane l where l.queue = p.queue and l.priority = p.priority offset 0)
    returning 1
),
size as materialized (
    select coalesce(cardinality($1), (select count(*) from known)) > $2 as many
)
select
    case when many then array(select distinct p.queue from pairs p)
         when $1 is null then array(select queue from known union select queue from pairs)
         else $1 end as names,
    many,
    (select count(*) from added)::int as added
from set_config('synchronous_commit', 'off', true)
cross join size
