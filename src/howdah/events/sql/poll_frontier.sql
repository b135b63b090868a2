-- poll_frontier: read how far the log can be read now, and in which run of the server. The events are read in a later statement.
-- in:  $1 milliseconds to request wake-ups for, 0 for none
-- out: head, safe, held (whether an append is open), run (null: another transaction is beginning it)

select f.head, f.safe, f.held, {schema}.begin_run() as run from {schema}.frontier($1::int) f
