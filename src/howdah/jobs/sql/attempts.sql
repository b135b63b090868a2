-- attempts: the history of one job.
-- in:  $1 id int8, $2 rows int
-- out: its failed and lost attempts, oldest first; of more than $2 the latest

select *
from (
    select a.attempt, a.outcome, a.node, n.name as node_name, a.started_at, a.ended_at, a.error, a.message, a.traceback
    from {schema}.attempt a
    left join {schema}.node n on n.id = a.node
    where a.id = $1
    order by a.ended_at desc, a.attempt desc
    limit $2
) latest
order by ended_at, attempt
