-- ack_done: the hot ack: successes, whose record does not depend on the row of the job.
-- in:  $1 node int
--      $2 leases touched int8[], $3 how many of these jobs each of them holds int4[]
--      $4 ids int8[], $5 attempts int2[], $6 took microseconds int8[], as text: the driver is quicker with it
--      $7 results json[], one per id, or none at all
--      $8 keys text[] and $9 the ids int8[] of the jobs that hold them, of those that have one
-- out: the tokens of $2 still held, and whether the lease is over; when a token is missing nothing was written
--
-- All or nothing saves a token per job on the wire and a test per row. No ON CONFLICT, it costs a third of the
-- statement: a replay after a lost reply raises unique_violation, and the caller goes through {schema}.ack.
-- A lease that one of these jobs has left counts as not held, and the caller goes through {schema}.ack: recorded and
-- counted a second time, that job would end the lease before its other jobs. This statement sees a job that left before it
-- began. One that leaves while it waits it does not see, so of one job there is never a second report beside it.
-- Leases are deleted by token, never by the ctid just locked: a heartbeat that commits while we wait moves the row.
-- Rows of job_key are inserted and deleted, never updated, so a key that another job took meanwhile is not deleted: this
-- snapshot does not see it. Keys are probed one by one (OFFSET 0): a join might read all of job_key.

with held as materialized (
    select l.token, l.remaining
    from {schema}.lease l
    where l.token = any($2::int8[]) and l.node = $1
      and not exists (
          select from {schema}.gone g where g.token = l.token and g.id + 0 = any((select $4::text::int8[])::int8[]) offset 0)
    order by l.token
    for update
),
counted as materialized (
    select h.token, h.remaining - t.jobs as remaining, (select count(*) from held) = cardinality($2::int8[]) as complete
    from held h
    join unnest($2::int8[], $3::int4[]) t(token, jobs) on t.token = h.token
),
over as (
    insert into {schema}.done (id, attempt, state, node, took_us, result)
    select id, attempt, 'd', $1, took, result
    from unnest($4::text::int8[], $5::text::int2[], $6::text::int8[], $7::json[]) a(id, attempt, took, result)
    where (select complete from counted limit 1)
),
keys as (
    delete from {schema}.job_key
    where key = any(array(
        select h.key
        from unnest($8::text[], $9::int8[]) x(key, id)
        cross join lateral (select k.key from {schema}.job_key k where k.key = x.key and k.id = x.id offset 0) h
        where (select complete from counted limit 1)))
),
ended as (
    delete from {schema}.lease
    where token = any(array(select token from counted where complete and remaining = 0))
),
forgotten as (
    delete from {schema}.gone
    where token = any(array(select token from counted where complete and remaining = 0))
),
left_over as (
    update {schema}.lease l
    set remaining = c.remaining
    from counted c
    where l.token = c.token
      and l.token = any(array(select token from counted where complete and remaining > 0))
)
select token, coalesce(complete and remaining = 0, false) as over
from counted
