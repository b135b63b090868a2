-- refusing: every row of the table that refuses updates.
-- out: mark, refusal, state, resets, message

select mark, refusal, state, num_resets as resets, failure_message as message from {run_schema}.refusing order by id
