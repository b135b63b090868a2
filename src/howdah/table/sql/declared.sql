-- declared: what nodes declare of a table.
-- in:  $1 table text, quoted, $2 rows at most int
-- out: node, name, stalled_after, condition, live (whether the node was seen within the last minute)

select node, name, stalled_after, condition, seen_at > clock_timestamp() - interval '1 minute' as live
from {schema}.table_worker
where relation = $1::text
order by seen_at desc
limit $2::int
