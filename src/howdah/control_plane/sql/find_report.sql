-- find_report: the stored response to an earlier report; no row if there is no such job.
-- in:  $1 node int, $2 token int8, $3 job int8
-- out: state (null: no report of this node under this token)

select (select r.state from {schema}.report r where r.token = $2 and r.job = $3 and r.node = $1) as state
from {schema}.job j
where j.id = $3
