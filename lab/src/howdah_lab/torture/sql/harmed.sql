-- harmed: every row of the table that refuses updates.
-- out: mark, harm, state, resets, message

select mark, harm, state, num_resets as resets, failure_message as message from {yard}.harmed order by id
