-- stats: nodes, slots and running jobs by state.
-- out: status, nodes, slots, running

select state as status, count(*) as nodes, sum(slots)::int8 as slots, sum(running)::int8 as running
from {schema}.node
where state <> 'offline'
group by state
