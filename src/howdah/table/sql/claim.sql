-- claim: lease due rows to one node.
-- in:  $1 rows wanted int
--      $2 name of the node text
--      $3 token int8, see token.sql
--      $4 ids to leave out: rows whose claim the table just rejected
-- out: id, taken (false: a trigger dropped the update), failures so far, seconds waited, costs; in the order asked for
--
-- Straight from the base table and locked in the ordered scan: rows locked by others are skipped, not waited for.
-- NO KEY UPDATE, so that a row that a new foreign key refers to is not skipped as well.
-- Rows that would overdraw a budget stay locked until the commit and are not written.
-- The claim commits asynchronously: a claim that a crash forgets is a row that is still queued. No other
-- claim has the same token, whatever the crash made the server forget.
-- IN, not a join, finds what was taken: it is hashed whatever the planner expects.
-- Comments in angle brackets are replaced by SQL made from the table's options.

with due as materialized (
    select {alias}.{id} as id, {alias}.{queued_at} as queued_at, {alias}.{process_after} as process_after,
        coalesce({alias}.{num_failures}, 0)::int as failures, array[/*<costs>*/]::float8[] as costs
    from {namespace}.{table} as {alias}
    where {alias}.{state} in ('queued', 'errored')
      and ({alias}.{process_after} is null or {alias}.{process_after} <= now())
      and {alias}.{cancel} is not true
      and {alias}.{id} <> all($4::pg_catalog.{id_type}[])/*<where>*/
    order by /*<order>*/{alias}.{id}
    limit $1::int
    for no key update of {alias} skip locked
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
