-- count_attempts: how many jobs are done, by the number of their attempts.
-- out: attempt, jobs

select attempt, count(*) as jobs from {schema}.done where state = 'd' group by attempt
