-- effects: every effect that was committed, in the order in which they were written.
-- out: front, mark, stream, version, attempt, token, pid

select front, mark, stream, version, attempt, token, pid from {run_schema}.effect order by id
