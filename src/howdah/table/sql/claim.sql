-- claim: lease due rows to one node.
-- in:  $1 rows wanted int
--      $2 name of the node text
-- out: id, token, failures so far, seconds waited, costs; in the order asked for
--
-- Straight from the base table and locked in the ordered scan: rows others hold are passed over, not waited for.
-- NO KEY UPDATE, so that a row somebody refers to with a foreign key just now is not passed over as well.
-- Rows that would overdraw a budget stay locked until the commit and are not written.
-- The claim commits asynchronously: a claim that a crash forgets is a row that is still queued.
-- Comments in angle brackets are replaced by what the table's options say.

with due as materialized (
    select {alias}.{id} as id, {alias}.{queued_at} as queued_at, {alias}.{process_after} as process_after,
        array[/*<costs>*/]::float8[] as costs
    from {namespace}.{table} as {alias}
    where {alias}.{state} in ('queued', 'errored')
      and ({alias}.{process_after} is null or {alias}.{process_after} <= now())
      and {alias}.{cancel} is not true/*<where>*/
    order by /*<order>*/{alias}.{id}
    limit $1::int
    for no key update of {alias} skip locked
),
placed as materialized (
    select id, queued_at, process_after, costs, row_number() over () as place/*<sums>*/
    from due
),
fit as materialized (
    select id, queued_at, process_after, costs, place
    from placed
    where true/*<fits>*/
),
lease as materialized (
    select nextval({'schema.token'}) as token, set_config('synchronous_commit', 'off', true)
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
    returning t.{id} as id, lease.token as token, coalesce(t.{num_failures}, 0)::int as failures
)
select taken.id, taken.token, taken.failures,
    extract(epoch from clock_timestamp() - greatest(fit.queued_at, fit.process_after))::float8 as waited, fit.costs
from taken
join fit on fit.id = taken.id
order by fit.place
