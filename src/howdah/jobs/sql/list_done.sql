-- list_done: ids of jobs that succeeded, newest first.
-- in:  $1 before int8, $2 queue, $3 kind, $4 key (each text or null), $5 rows int
-- out: id

select d.id
from {schema}.done d
where d.state = 'd'
  and d.id < $1
  and (($2::text is null and $3::text is null and $4::text is null)
    or exists (
        select from {schema}.job j
        where j.id = d.id
          and ($2::text is null or j.queue = $2)
          and ($3::text is null or j.kind = $3)
          and ($4::text is null or j.key = $4)
        offset 0))
order by d.id desc
limit $5
