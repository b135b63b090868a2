-- pgbench_append: one event, as a script of pgbench.
-- in:  streams, how many streams there are to choose from

\set stream random(1, :streams)
select version from {schema}.append('Order-' || :stream::text,
    '[{"type": "Placed", "data": {"user_id": 100000, "email": "user0@example.com", "template": "welcome", "number": 0, "tags": ["a", "b"]}}]');
