-- list_bad: ids of jobs that failed or were cancelled, newest first.
-- in:  $1 state text, 'f' failed or 'c' cancelled
--      $2 before int8, $3 queue, $4 kind, $5 key (each text or null), $6 rows int
-- out: id
--
-- `state <> 'd'` is what the partial index done_bad says, so history is not read.

select d.id
from {schema}.done d
where d.state <> 'd'
  and d.state = $1::text::"char"
  and d.id < $2
  and (($3::text is null and $4::text is null and $5::text is null)
    or exists (
        select from {schema}.job j
        where j.id = d.id
          and ($3::text is null or j.queue = $3)
          and ($4::text is null or j.kind = $4)
          and ($5::text is null or j.key = $5)
        offset 0))
order by d.id desc
limit $6
