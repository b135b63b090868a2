-- insert_rows: so many rows to work on.
-- in:  $1 how many int

insert into {schema}.bench_row (queued_at) select now() from generate_series(1, $1::int)
