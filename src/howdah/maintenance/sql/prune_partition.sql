-- prune_partition: drop the oldest partition that is past its retention, and audit it.
-- in:  $1 seconds done jobs are kept float8, $2 seconds failed and cancelled ones are kept float8,
--      $3 who text (null: no audit entry), $4 via text, $5 address text or null, $6 what was asked for, json as text
-- out: jobs dropped, null when there is nothing to drop
--
-- One statement: a process that is frozen between two would hold the lock on all jobs.

with dropped as materialized (
    select {schema}.prune_partition(now() - $1::float8 * interval '1 second', now() - $2::float8 * interval '1 second') as jobs
),
noted as (
    insert into {schema}.audit (who, via, address, verb, thing, after, count)
    select $3::text, $4::text, $5::text, 'prune', 'job', $6::text::json, jobs from dropped where jobs > 0 and $3 is not null
)
select jobs from dropped
