-- declare: store the stall time of this node's rows.
-- in:  $1 table text, quoted, $2 name of the node text, $3 name of the table in the app text
--      $4 seconds of silence after which a worker counts as dead float8, $5 the table's own condition text, null for none
-- out: nothing
--
-- A node that has not been seen for a day has no rows any more.

with old as (
    delete from {schema}.table_worker where relation = $1::text and seen_at < clock_timestamp() - interval '1 day'
)
insert into {schema}.table_worker (relation, node, name, stalled_after, condition)
values ($1::text, $2::text, $3::text, $4::float8, $5::text)
on conflict (relation, node, name) do update
set stalled_after = excluded.stalled_after, condition = excluded.condition, seen_at = clock_timestamp()
