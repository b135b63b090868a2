-- resume: the queue is claimed from again.
-- in:  $1 queue text
-- out: whether it was paused

select {schema}.resume($1)
