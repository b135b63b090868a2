-- count_rows: how many rows are completed, and how many are not.
-- out: completed, other

select count(*) filter (where state = 'completed') as completed, count(*) filter (where state <> 'completed') as other
from {schema}.bench_row
