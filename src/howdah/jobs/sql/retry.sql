-- retry: failed or cancelled jobs start anew, with no attempt used.
-- in:  $1 ids int8[]
-- out: id, said: queued | live | done | unknown | key held by job N

select id, said from {schema}.retry($1::int8[])
