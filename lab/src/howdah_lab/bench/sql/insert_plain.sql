-- insert_plain: the least a durable enqueue could be.
-- in:  $1 args json

insert into {schema}.bench_plain (args) values ($1::json)
