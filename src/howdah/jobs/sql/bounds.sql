-- bounds: the range of ids of jobs enqueued in a span of time; without a limit, the smallest or largest id.
-- in:  $1 from, $2 to timestamptz or null
-- out: first, before int8
--
-- The time of a job is the start of its transaction, and its id is allocated later: one hour allows for that.

select case when $1::timestamptz is null then 0 else {schema}.job_at($1 - interval '1 hour') end as first,
    case when $2::timestamptz is null then 9223372036854775807 else {schema}.job_at($2 + interval '1 hour') end as before
