-- ack_done: the hot ack, plain success of jobs without key or result.
-- in:  $1 node int
--      $2 leases touched int8[]
--      $3 leases finished by this int8[]
--      $4 ids int8[], $5 attempts int2[], $6 took microseconds int8[], as text: the driver is quicker with it
-- out: the tokens of $2 still held; when one is missing nothing was written
--
-- All or nothing saves a token per job on the wire and a test per row. No ON CONFLICT, it costs a third of the
-- statement: a replay after a lost reply raises unique_violation, and the caller goes through {schema}.ack.
-- Leases are deleted by token, never by the ctid just locked: a heartbeat that commits while we wait moves the row.

with held as materialized (
    select token
    from {schema}.lease
    where token = any($2::int8[]) and node = $1
    order by token
    for update
),
over as (
    insert into {schema}.done (id, attempt, state, node, took_us)
    select id, attempt, 'd', $1, took
    from unnest($4::text::int8[], $5::text::int2[], $6::text::int8[]) a(id, attempt, took)
    where (select count(*) from held) = cardinality($2::int8[])
),
leases as (
    delete from {schema}.lease
    where token = any(array(
        select token from held
        where token = any($3::int8[]) and (select count(*) from held) = cardinality($2::int8[])))
),
forgotten as (
    delete from {schema}.gone
    where token = any(array(
        select token from held
        where token = any($3::int8[]) and (select count(*) from held) = cardinality($2::int8[])))
)
select token from held
