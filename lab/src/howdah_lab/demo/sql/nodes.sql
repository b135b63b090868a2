-- nodes: those that have not said goodbye.

select id, name, state, running, slots
from {schema}.node
where state <> 'offline'
order by started_at, id
