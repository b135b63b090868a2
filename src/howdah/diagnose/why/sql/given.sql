-- given: whether an id was ever given to a job.
-- in:  $1 id int8
-- out: given

select $1::int8 between 1 and coalesce(pg_sequence_last_value({'schema.job_id'}::regclass), 0) as given
