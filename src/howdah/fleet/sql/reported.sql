-- reported: what a report came to that was made before; whether there is such a job at all.
-- in:  $1 node int, $2 token int8, $3 job int8
-- out: state (null: it was not this node, or not under this token)

select (select r.state from {schema}.report r where r.token = $2 and r.job = $3 and r.node = $1) as state
from {schema}.job j
where j.id = $3
