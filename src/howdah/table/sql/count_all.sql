-- count_all: every row, by state; for small tables.
-- out: state, rows

select t.{state}::text as state, count(*) as rows
from {namespace}.{table} as t
group by t.{state}
