-- rejections: rows whose update the table rejected lately.
-- in:  $1 table text, quoted, $2 seconds ago at most float8, $3 rows at most int
-- out: id, act, message

select row_id as id, act, message
from {schema}.table_refusal
where relation = $1::text
  and seen_at > clock_timestamp() - $2::float8 * interval '1 second'
order by seen_at desc, row_id
limit $3::int
