-- count_plain: the rows that pgbench inserted.
-- out: count

select count(*) from {schema}.bench_plain
