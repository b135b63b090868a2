-- ack_batch: record the successes of a batch inside its handler's own transaction.
-- in:  $1 node int
--      $2 leases of these jobs int8[], each once, $3 how many of these jobs each of them holds int4[]
--      $4 ids int8[], $5 attempts int2[], $6 took microseconds int8[], as text: the driver is quicker with it
--      $7 results text[], one per id, or none at all
--      $8 keys text[] and $9 the ids int8[] of the jobs that hold them, of those that have one
-- out: the tokens of $2 that are still held; when one is missing nothing was written, and the caller rolls back
--
-- The lease is locked until the commit: its heartbeat skips it, a reset, which deletes it, waits or skips it, and other
-- batches of the lease wait. Transactional handlers of single jobs do not: they lock it FOR KEY SHARE. It is counted down,
-- or its end would have to probe every job, but not deleted: a heartbeat would call it lost before the reply is here.
-- Jobs that left their lease are found by left_jobs afterwards: this statement may wait for an uncommitted retry or delete,
-- and does not see it then. A second record of a job raises unique_violation. Rows of job_key are inserted and deleted,
-- never updated, so a key that another job took meanwhile is not deleted: this snapshot does not see it. Keys are probed
-- one by one (OFFSET 0): a join might read all of job_key.

with held as materialized (
    select l.token
    from {schema}.lease l
    where l.token = any($2::int8[]) and l.node = $1
    order by l.token
    for no key update
),
counted as (
    update {schema}.lease l
    set remaining = l.remaining - t.jobs
    from unnest($2::int8[], $3::int4[]) t(token, jobs)
    where l.token = t.token
      and l.token = any(array(select token from held))
      and (select count(*) from held) = cardinality($2::int8[])
),
over as (
    insert into {schema}.done (id, attempt, state, node, took_us, result)
    select a.id, a.attempt, 'd', $1, a.took, a.result::json
    from unnest($4::text::int8[], $5::text::int2[], $6::text::int8[], $7::text[]) a(id, attempt, took, result)
    where (select count(*) from held) = cardinality($2::int8[])
),
keys as (
    delete from {schema}.job_key
    where key = any(array(
        select h.key
        from unnest($8::text[], $9::int8[]) x(key, id)
        cross join lateral (select k.key from {schema}.job_key k where k.key = x.key and k.id = x.id offset 0) h
        where (select count(*) from held) = cardinality($2::int8[])))
)
select token
from held
