-- list_done_of: ids of jobs of a queue, kind or key that succeeded, newest first.
-- in:  $1 before int8, $2 queue, $3 kind, $4 key (each text or null), $5 rows int
-- out: id
--
-- Reads `job` and probes `done`: what does not match costs no probe. Begins at the newest job that ended, so that a
-- backlog above it is not probed. COALESCE hides the filters from the planner: see list_all.

select j.id
from {schema}.job j
where j.id <= (select max(d.id) from {schema}.done d where d.id < $1)
  and coalesce(j.queue = $2, $2::text is null)
  and coalesce(j.kind = $3, $3::text is null)
  and coalesce(j.key = $4, $4::text is null)
  and exists (select from {schema}.done d where d.id = j.id and d.state = 'd' offset 0)
order by j.id desc
limit $5
