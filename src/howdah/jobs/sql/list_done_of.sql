-- list_done_of: ids of jobs of a queue, kind or key that succeeded, newest first.
-- in:  $1 before int8, $2 queue, $3 kind, $4 key (each text or null), $5 rows int
-- out: id
--
-- Reads `job` and probes `done`: what does not match costs no probe.

select j.id
from {schema}.job j
where j.id < $1
  and ($2::text is null or j.queue = $2)
  and ($3::text is null or j.kind = $3)
  and ($4::text is null or j.key = $4)
  and exists (select from {schema}.done d where d.id = j.id and d.state = 'd' offset 0)
order by j.id desc
limit $5
