-- tally: add what finished to the minute it finished in.
-- in:  $1 queue text[], $2 kind text[], $3 outcome text[], $4 jobs int8[], $5 seconds float8[]

insert into {schema}.tally as t (at, queue, kind, outcome, jobs, seconds)
select date_trunc('minute', now()), queue, kind, outcome, jobs, seconds
from unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::float8[]) x(queue, kind, outcome, jobs, seconds)
order by queue, kind, outcome
on conflict (at, queue, kind, outcome) do update
set jobs = t.jobs + excluded.jobs, seconds = t.seconds + excluded.seconds
