-- count: what became of the jobs lo <= id < hi.
-- in:  $1 lo int8, $2 hi int8

select count(*) as enqueued,
    count(*) filter (where d.state = 'd') as done,
    count(*) filter (where d.state = 'f') as failed,
    (select count(*) from {schema}.attempt a where a.id >= $1 and a.id < $2 and a.outcome = 'retry') as retried
from {schema}.job j
left join {schema}.done d on d.id = j.id and d.id >= $1 and d.id < $2
where j.id >= $1 and j.id < $2
