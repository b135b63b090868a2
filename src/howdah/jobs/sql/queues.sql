-- queues: the name of every queue that ever held a job.
-- out: names text[]

select array(select distinct queue from {schema}.lane)
