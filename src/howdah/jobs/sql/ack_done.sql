-- ack_done: the hot ack, plain success of jobs without key or result.
-- in:  $1 node int
--      $2 leases touched int8[], $3 how many of these jobs each of them holds int4[]
--      $4 ids int8[], $5 attempts int2[], $6 took microseconds int8[], as text: the driver is quicker with it
-- out: the tokens of $2 still held, and whether the lease is over; when a token is missing nothing was written
--
-- All or nothing saves a token per job on the wire and a test per row. No ON CONFLICT, it costs a third of the
-- statement: a replay after a lost reply raises unique_violation, and the caller goes through {schema}.ack.
-- Leases are deleted by token, never by the ctid just locked: a heartbeat that commits while we wait moves the row.

with held as materialized (
    select token, remaining
    from {schema}.lease
    where token = any($2::int8[]) and node = $1
    order by token
    for update
),
counted as materialized (
    select h.token, h.remaining - t.jobs as remaining
    from held h
    join unnest($2::int8[], $3::int4[]) t(token, jobs) on t.token = h.token
    where (select count(*) from held) = cardinality($2::int8[])
),
over as (
    insert into {schema}.done (id, attempt, state, node, took_us)
    select id, attempt, 'd', $1, took
    from unnest($4::text::int8[], $5::text::int2[], $6::text::int8[]) a(id, attempt, took)
    where (select count(*) from held) = cardinality($2::int8[])
),
ended as (
    delete from {schema}.lease
    where token = any(array(select token from counted where remaining = 0))
),
forgotten as (
    delete from {schema}.gone
    where token = any(array(select token from counted where remaining = 0))
),
left_over as (
    update {schema}.lease l
    set remaining = c.remaining
    from counted c
    where l.token = c.token
      and l.token = any(array(select token from counted where remaining > 0))
)
select h.token, coalesce(c.remaining = 0, false) as over
from held h
left join counted c on c.token = h.token
