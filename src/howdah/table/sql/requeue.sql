-- requeue: requeue rows for later, whatever their outcome; finished rows start again with all attempts.
-- in:  $1 ids, $2 seconds until then float8
-- out: id, was (the state it was in, null when there is no such row), result (queued, or left: it is worked on)

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
        {process_after} = clock_timestamp() + $2::float8 * interval '1 second',
        {started_at} = null,
        {finished_at} = null,
        {failure_message} = null,
        {num_failures} = case when t.{state} in ('queued', 'errored') then t.{num_failures} else 0 end,
        {num_resets} = case when t.{state} in ('queued', 'errored') then t.{num_resets} else 0 end,
        {cancel} = false,
        {lease_token} = null
    where t.{id} = any(array(
        select id from found where state in ('queued', 'errored', 'failed', 'completed', 'canceled')))
)
select asked.id::text as id, found.state as was,
    case when found.state in ('queued', 'errored', 'failed', 'completed', 'canceled') then 'queued' else 'left' end as result
from asked
left join found on found.id = asked.id
order by asked.place
