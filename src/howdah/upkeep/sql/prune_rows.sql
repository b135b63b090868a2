-- prune_rows: delete rows past their time that no drop will reach soon.
-- in:  $1 seconds done jobs are kept float8, $2 seconds failed and cancelled ones are kept float8, $3 most int
-- out: jobs deleted

select {schema}.prune_rows(now() - $1::float8 * interval '1 second', now() - $2::float8 * interval '1 second', $3::int)
