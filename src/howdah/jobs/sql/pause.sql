-- pause: stop claims from this queue until it is resumed.
-- in:  $1 queue text, $2 by text or null
-- out: true

select {schema}.pause($1, $2::text)
