-- without_frontier: all that is committed may be read, whatever older position is still open.

create or replace function {schema}.frontier(sleep_ms int default 0, out head bigint, out safe bigint, out held boolean)
language sql as $$
    select last, last, false
    from (select coalesce(pg_sequence_last_value({'schema.event_position_seq'}::regclass), 0) as last) s
$$
