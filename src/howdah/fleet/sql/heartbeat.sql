-- heartbeat: renew the leases a worker names; only those.
-- in:  $1 node int, $2 tokens int8[], $3 lease seconds float8
-- out: kept tokens, ids to cancel

with mine as materialized (
    select token, first_id, end_id, los, his
    from {schema}.lease
    where token = any($2::int8[]) and node = $1
    order by token
    for no key update
),
renewed as (
    update {schema}.lease
    set expires_at = clock_timestamp() + $3::float8 * interval '1 second'
    where token = any(array(select token from mine))
)
select array(select token from mine) as kept,
    array(
        select c.id
        from {schema}.cancel_request c
        join mine m on c.id >= m.first_id and c.id < m.end_id
        where exists (select from unnest(m.los, m.his) r(lo, hi) where c.id >= r.lo and c.id < r.hi)) as cancel
