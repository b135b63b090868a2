-- heartbeat: renew the leases this process names, and say it lives; one statement per node, whatever it runs.
-- in:  $1 node int, $2 tokens int8[], $3 lease seconds float8, $4 state text, $5 running int, $6 deaf bool,
--      $7 slots taken beside leases int
-- out: lost tokens, ids to cancel, leaving (the node was asked to drain), registered (false: there is no
--      row of this node)
--
-- Only named tokens are renewed: a claim whose reply was lost must expire. A lease whose row is locked, as by a retry in a
-- transaction that stays open, must not hold up the others: it is noted at the node, and not reset while the node lives.

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
alive as (
    update {schema}.node
    set beat_at = clock_timestamp(), running = $5, deaf = $6, beside = $7, stopped_at = null,
        state = case when leaving then 'draining' else $4 end,
        locked = (select array_agg(token) from locked),
        locked_until = case when exists (select from locked) then clock_timestamp() + $3::float8 * interval '1 second' end
    where id = $1
    returning leaving
)
select array(select t from unnest($2::int8[]) t except select token from there) as lost,
    array(
        select c.id
        from {schema}.cancel_request c
        join mine m on c.id >= m.first_id and c.id < m.end_id
        where exists (select from unnest(m.los, m.his) r(lo, hi) where c.id >= r.lo and c.id < r.hi)) as cancel,
    coalesce((select leaving from alive), false) as leaving,
    exists (select from alive) as registered
