-- put_rows: rows of a user's own table, by an insert of their own.
-- in:  $1 marks int8[], $2 pauses float8[]

insert into {run_schema}.rows (mark, pause) select * from unnest($1::int8[], $2::float8[])
