-- clock: the server's clock.
-- out: seconds since 1970

select extract(epoch from clock_timestamp())::float8
