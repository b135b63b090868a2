-- check_scheduled: whether many rows are scheduled for later.
-- in:  $1 how many are many int
-- out: bool

select count(*) >= $1::int
from (
    select from {namespace}.{table} as {alias}
    where {alias}.{state} in ('queued', 'errored')
      and {alias}.{process_after} > now()
    limit $1::int
) scheduled
