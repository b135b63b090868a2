-- list_done: ids of jobs that succeeded, newest first.
-- in:  $1 before int8, $2 rows int
-- out: id

select d.id
from {schema}.done d
where d.state = 'd'
  and d.id < $1
order by d.id desc
limit $2
