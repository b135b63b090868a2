-- prune_rows: delete rows past their retention that no drop will reach soon, and audit it.
-- in:  $1 seconds done jobs are kept float8, $2 seconds failed and cancelled ones are kept float8, $3 most int,
--      $4 who text (null: no audit entry), $5 via text, $6 address text or null, $7 what was asked for, json as text
-- out: jobs deleted

with deleted as materialized (
    select {schema}.prune_rows(now() - $1::float8 * interval '1 second', now() - $2::float8 * interval '1 second', $3::int) as jobs
),
noted as (
    insert into {schema}.audit (who, via, address, verb, thing, after, count)
    select $4::text, $5::text, $6::text, 'prune', 'job', $7::text::json, jobs from deleted where jobs > 0 and $4 is not null
)
select jobs from deleted
