-- oversized: waiting rows that exceed the total budget.
-- in:  $1 rows at most int, then the total of each resource
-- out: id, costs

select {alias}.{id} as id, array[/*<costs>*/]::float8[] as costs
from {namespace}.{table} as {alias}
where {alias}.{state} in ('queued', 'errored')
  and {alias}.{cancel} is not true
  and (false/*<exceeds>*/)
limit $1::int
