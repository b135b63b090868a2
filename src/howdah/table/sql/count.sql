-- count: waiting and processing rows.
-- in:  the values of the table's own condition, from $1 on
-- out: due, later (waiting, but not yet due), processing, oldest (seconds the oldest due row waits, or null);
--      queued, errored (those that wait, by state)
--
-- Finished rows are never read: each of the two conditions is that of an index `howdah table check` asks for.

select waiting.due, waiting.queued + waiting.errored - waiting.due as later, working.processing,
    extract(epoch from clock_timestamp() - waiting.since)::float8 as oldest, waiting.queued, waiting.errored
from (
    select count(*) filter (where {alias}.{state} = 'queued') as queued,
        count(*) filter (where {alias}.{state} = 'errored') as errored,
        count(*) filter (where {alias}.{process_after} is null or {alias}.{process_after} <= now()) as due,
        min(greatest({alias}.{queued_at}, {alias}.{process_after}))
            filter (where {alias}.{process_after} is null or {alias}.{process_after} <= now()) as since
    from {namespace}.{table} as {alias}
    where {alias}.{state} in ('queued', 'errored')
      and true/*<where>*/
) waiting
cross join (
    select count(*) as processing
    from {namespace}.{table} as {alias}
    where {alias}.{state} = 'processing'
      and true/*<where>*/
) working
