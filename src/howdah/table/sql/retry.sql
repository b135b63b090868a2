-- retry: requeue failed rows with all attempts, due at once.
-- in:  $1 ids
-- out: id, was (the state it was in, null when there is no such row), result (queued, or left)
--
-- The token is removed: later reports of a worker for an earlier attempt are rejected.

with asked as materialized (
    select id, place from unnest($1::pg_catalog.{id_type}[]) with ordinality asked(id, place)
),
found as materialized (
    select t.{id} as id, t.{state}::text as state
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
    order by t.{id}
    for no key update
),
back as (
    update {namespace}.{table} as t
    set {state} = 'queued',
        {queued_at} = clock_timestamp(),
        {process_after} = null,
        {started_at} = null,
        {finished_at} = null,
        {failure_message} = null,
        {num_failures} = 0,
        {num_resets} = 0,
        {cancel} = false,
        {lease_token} = null
    where t.{id} = any(array(select id from found where state in ('failed', 'errored')))
)
select asked.id::text as id, found.state as was,
    case when found.state in ('failed', 'errored') then 'queued' else 'left' end as result
from asked
left join found on found.id = asked.id
order by asked.place
