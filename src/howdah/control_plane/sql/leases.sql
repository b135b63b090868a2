-- leases: all tokens of a worker, including those it does not know of because the response to its claim was lost.
-- in:  $1 id
-- out: tokens

select coalesce(array_agg(l.token), '{}') as tokens
from {schema}.lease l
join {schema}.node n on n.id = l.node
where n.id = $1 and n.remote and n.stopped_at is null
