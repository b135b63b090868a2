-- list_all: ids of jobs in any state, newest first.
-- in:  $1 before int8, $2 queue, $3 kind, $4 key (each text or null), $5 rows int
-- out: id
--
-- COALESCE hides the filters from the planner: with old statistics it takes them for rare, then reads and sorts all of
-- history instead of going down the ids.

select j.id
from {schema}.job j
where j.id < $1
  and coalesce(j.queue = $2, $2::text is null)
  and coalesce(j.kind = $3, $3::text is null)
  and coalesce(j.key = $4, $4::text is null)
order by j.id desc
limit $5
