-- ack_batch: record the successes of a batch inside its handler's own transaction.
-- in:  $1 node int, $2 leases of these jobs int8[], each once
--      $3 ids int8[], $4 attempts int2[], $5 took microseconds int8[], as text: the driver is quicker with it
--      $6 results text[], one per id, or none at all
--      $7 keys text[] and $8 the ids int8[] of the jobs that hold them, of those that have one
-- out: the tokens of $2 that are still held; when one is missing nothing was written, and the caller rolls back
--
-- FOR KEY SHARE as in ack_in_transaction: batches and handlers of one lease commit side by side and do not block its
-- heartbeat, but a reset, which deletes the lease, must wait or skip it. Jobs that left their lease are found by left_jobs
-- afterwards: this statement may wait for an uncommitted retry or delete, and does not see it then. A second record of a
-- job raises unique_violation. Rows of job_key are inserted and deleted, never updated, so a key that another job took
-- meanwhile is not deleted: this snapshot does not see it. Keys are probed one by one (OFFSET 0): a join might read all of
-- job_key.

with held as materialized (
    select l.token
    from {schema}.lease l
    where l.token = any($2::int8[]) and l.node = $1
    order by l.token
    for key share
),
over as (
    insert into {schema}.done (id, attempt, state, node, took_us, result)
    select a.id, a.attempt, 'd', $1, a.took, a.result::json
    from unnest($3::text::int8[], $4::text::int2[], $5::text::int8[], $6::text[]) a(id, attempt, took, result)
    where (select count(*) from held) = cardinality($2::int8[])
),
keys as (
    delete from {schema}.job_key
    where key = any(array(
        select h.key
        from unnest($7::text[], $8::int8[]) x(key, id)
        cross join lateral (select k.key from {schema}.job_key k where k.key = x.key and k.id = x.id offset 0) h
        where (select count(*) from held) = cardinality($2::int8[])))
)
select token
from held
