-- rows: every row of the tortured table.
-- out: mark, state, num_resets, failure_message

select mark, state, num_resets, failure_message from {run_schema}.rows
