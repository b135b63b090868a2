-- newest_id: the last job id that was given out.
-- out: id

select last_value from {schema}.job_id
