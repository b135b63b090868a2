-- pgbench_insert: the least an append of one event could be, as a script of pgbench.
-- in:  streams, how many streams there are to choose from

\set stream random(1, :streams)
\set version random(1, 9000000000000000)
insert into {schema}.bench_event (stream_type, stream_id, version, type, data)
values ('Order', :stream::text, :version::int8, 'Placed',
    '{"user_id": 100000, "email": "user0@example.com", "template": "welcome", "number": 0, "tags": ["a", "b"]}');
