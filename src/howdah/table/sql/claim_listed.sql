-- claim_listed: lease rows of a list to one node, as claim.sql does; the list is in the order of the claim.
-- in:  $1 rows wanted int
--      $2 name of the node text
--      $3 token int8, see token.sql
--      $4 ids to leave out; the list itself is the parameter after the values of the conditions
-- out: as claim.sql
--
-- Each row is found by its id: without the subquery the planner could read all waiting rows in order instead.
-- All rows of the list are locked until the commit, so it is short.

with due as materialized (
    select found.*
    from unnest(/*<listed>*/array[]::pg_catalog.{id_type}[]/*</listed>*/) with ordinality as listed(id, place)
    cross join lateral (
        select {alias}.{id} as id, {alias}.{queued_at} as queued_at, {alias}.{process_after} as process_after,
            coalesce({alias}.{num_failures}, 0)::int as failures, array[/*<costs>*/]::float8[] as costs
        from {namespace}.{table} as {alias}
        where {alias}.{id} = listed.id
          and {alias}.{state} in ('queued', 'errored')
          and ({alias}.{process_after} is null or {alias}.{process_after} <= now())
          and {alias}.{cancel} is not true
          and {alias}.{id} <> all($4::pg_catalog.{id_type}[])/*<where>*/
        for no key update of {alias} skip locked
    ) found
    order by listed.place
    limit $1::int
),
placed as materialized (
    select id, queued_at, process_after, failures, costs, row_number() over () as place/*<sums>*/
    from due
),
fit as materialized (
    select id, queued_at, process_after, failures, costs, place
    from placed
    where true/*<fits>*/
),
lease as materialized (
    select $3::int8 as token, set_config('synchronous_commit', 'off', true)
),
taken as (
    update {namespace}.{table} as t
    set {state} = 'processing',
        {started_at} = clock_timestamp(),
        {last_heartbeat_at} = clock_timestamp(),
        {finished_at} = null,
        {failure_message} = null,
        {execution_logs} = null,
        {worker_hostname} = $2::text,
        {lease_token} = lease.token
    from lease
    where t.{id} = any(array(select id from fit))
    returning t.{id} as id
)
select id, id in (select id from taken) as taken, failures,
    extract(epoch from clock_timestamp() - greatest(queued_at, process_after))::float8 as waited, costs
from fit
order by place
