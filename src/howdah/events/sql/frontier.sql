-- frontier: how far the log can be read now. The events are read in a later statement, never in this one.
-- in:  $1 milliseconds to request wake-ups for, 0 for none
-- out: head, safe, held (whether an append is open)

select head, safe, held from {schema}.frontier($1::int)
