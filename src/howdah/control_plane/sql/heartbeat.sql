-- heartbeat: renew the leases that a worker names, and no others.
-- in:  $1 node int, $2 tokens int8[], $3 lease seconds float8
-- out: kept tokens, ids to cancel
--
-- A lease whose row is locked, for example by a retry in a transaction that stays open, must not delay the others: it is
-- stored with the node, which protects it from a reset for as long as a renewal would.

with mine as materialized (
    select token, first_id, end_id, los, his
    from {schema}.lease
    where token = any($2::int8[]) and node = $1
    order by token
    for no key update skip locked
),
there as materialized (
    select token from {schema}.lease where token = any($2::int8[]) and node = $1
),
renewed as (
    update {schema}.lease
    set expires_at = clock_timestamp() + $3::float8 * interval '1 second'
    where token = any(array(select token from mine))
),
locked as materialized (
    select token from there except select token from mine
),
noted as (
    update {schema}.node
    set locked = (select array_agg(token) from locked),
        locked_until = case when exists (select from locked) then clock_timestamp() + $3::float8 * interval '1 second' end
    where id = $1 and (locked is not null or exists (select from locked))
)
select array(select token from there) as kept,
    array(
        select c.id
        from {schema}.cancel_request c
        join mine m on c.id >= m.first_id and c.id < m.end_id
        where exists (select from unnest(m.los, m.his) r(lo, hi) where c.id >= r.lo and c.id < r.hi)) as cancel
