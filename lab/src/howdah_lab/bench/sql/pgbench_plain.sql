-- pgbench_plain: the least a durable enqueue could be, for pgbench.

insert into {schema}.bench_plain (args) values
    ('{"user_id": 100000, "email": "user0@example.com", "template": "welcome", "number": 0, "tags": ["a", "b"]}');
