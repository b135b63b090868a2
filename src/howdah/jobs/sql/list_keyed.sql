-- list_keyed: ids of all jobs with a key, newest first.
-- in:  $1 before int8, $2 key text, $3 rows int
-- out: id

select j.id
from {schema}.job j
where j.key = $2
  and j.id < $1
order by j.id desc
limit $3
