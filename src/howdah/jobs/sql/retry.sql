-- retry: failed or cancelled jobs start anew, with no attempt used.
-- in:  $1 ids int8[], $2 the states they were seen in text[], $3 when they had ended timestamptz[] (null: whatever it is)
-- out: id, result: queued | live | done | changed | unknown | key held by job N; was: the state of those that were retried

select id, result, was from {schema}.retry_seen($1::int8[], $2::text[], $3::timestamptz[])
