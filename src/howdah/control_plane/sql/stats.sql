-- stats: nodes, slots and running jobs by state.
-- in:  $1 queues text[]: only nodes that serve one of them, as in `workers`; null for all
-- out: status, nodes, slots, running

select state as status, count(*) as nodes, sum(slots)::int8 as slots, sum(running)::int8 as running
from {schema}.node n
where state <> 'offline'
  and ($1::text[] is null or n.queues is null or n.tables && $1
    or exists (select from unnest(n.queues) q where q = any($1) or split_part(q, '+', 1) = any($1)))
group by state
