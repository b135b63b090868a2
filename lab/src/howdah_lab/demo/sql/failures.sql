-- failures: the last attempts that failed.
-- in:  $1 lo int8, $2 most int

select a.id, j.kind, a.attempt, j.max_attempts, a.outcome, concat_ws(': ', a.error, a.message) as why
from {schema}.attempt a
join {schema}.job j on j.id = a.id
where a.id >= $1
order by a.ended_at desc
limit $2
