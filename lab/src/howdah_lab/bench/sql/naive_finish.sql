-- naive_finish: one row, as worker loops written by hand end it.
-- in:  $1 id int8

update {schema}.bench_row set state = 'completed', finished_at = now() where id = $1 and state = 'processing'
