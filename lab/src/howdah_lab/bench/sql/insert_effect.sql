-- insert_effect: what a transactional handler does.
-- in:  $1 job int8

insert into {schema}.bench_effect (job) values ($1)
