-- bounds: between which ids jobs can be that were enqueued in a span of time; of those not given, what lies beyond all.
-- in:  $1 from, $2 to timestamptz or null
-- out: first, before int8
--
-- A job is as old as its transaction, and ids are drawn later within it: one hour allows for that.

select case when $1::timestamptz is null then 0 else {schema}.job_at($1 - interval '1 hour') end as first,
    case when $2::timestamptz is null then 9223372036854775807 else {schema}.job_at($2 + interval '1 hour') end as before
