-- cancel_rows: cancel waiting rows, and request the workers of processing ones to stop.
-- in:  $1 ids
-- out: id, was (the state it was in, null when there is no such row), result (canceled, asked or left)

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
over as (
    update {namespace}.{table} as t
    set {cancel} = true,
        {state} = case when t.{state} = 'processing' then t.{state} else 'canceled' end,
        {finished_at} = case when t.{state} = 'processing' then t.{finished_at} else clock_timestamp() end
    where t.{id} = any(array(select id from found where state in ('queued', 'errored', 'processing')))
)
select asked.id::text as id, found.state as was,
    case when found.state in ('queued', 'errored') then 'canceled' when found.state = 'processing' then 'asked'
        else 'left' end as result
from asked
left join found on found.id = asked.id
order by asked.place
