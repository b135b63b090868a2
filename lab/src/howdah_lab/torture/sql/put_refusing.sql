-- put_refusing: rows of the table that refuses updates.
-- in:  $1 marks int8[], $2 pauses float8[], $3 refusals text[]

insert into {run_schema}.refusing (mark, pause, refusal) select * from unnest($1::int8[], $2::float8[], $3::text[])
