-- reset_rows: every row that was taken from its node.
-- out: mark, node (its name), silence (seconds)

select mark, node, silence from {run_schema}.reset_row
