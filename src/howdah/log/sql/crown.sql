-- crown: write down who leads by a lock, for people to see.
-- in:  $1 node int, $2 seconds until it must be said again float8

update {schema}.leader l
set node = $1, expires_at = clock_timestamp() + $2::float8 * interval '1 second',
    since = case when l.node = $1 then l.since else clock_timestamp() end
