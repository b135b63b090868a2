-- visit: more seconds that people spent before a shelf.
-- in:  $1 shelf int8, $2 seconds int8

insert into {shop}.visits as v (shelf, seconds) values ($1, $2)
on conflict (shelf) do update set seconds = v.seconds + excluded.seconds
