-- cancel: cancel the waiting rows with cancel set.
-- in:  $1 rows at most int, $2 ids to leave out, $3 only these ids, or null for all
-- out: id, done (false: a trigger dropped the update)
--
-- IN, not a join, finds what was written: it is hashed whatever the planner expects.

with unwanted as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{state} in ('queued', 'errored')
      and t.{cancel}
      and t.{id} <> all($2::pg_catalog.{id_type}[])
      and ($3::pg_catalog.{id_type}[] is null or t.{id} = any($3::pg_catalog.{id_type}[]))
    limit $1::int
    for no key update skip locked
),
over as (
    update {namespace}.{table} as t
    set {state} = 'canceled', {finished_at} = clock_timestamp()
    where t.{id} = any(array(select id from unwanted))
    returning t.{id} as id
)
select id, id in (select id from over) as done
from unwanted
