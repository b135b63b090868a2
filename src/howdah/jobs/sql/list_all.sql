-- list_all: ids of jobs in any state, newest first.
-- in:  $1 before int8, $2 queue, $3 kind, $4 key (each text or null), $5 rows int
-- out: id

select j.id
from {schema}.job j
where j.id < $1
  and ($2::text is null or j.queue = $2)
  and ($3::text is null or j.kind = $3)
  and ($4::text is null or j.key = $4)
order by j.id desc
limit $5
