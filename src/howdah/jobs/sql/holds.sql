-- holds: kinds that are left alone now.
-- out: kind, seconds left

select kind, extract(epoch from until - clock_timestamp())::float8 as left_over
from {schema}.hold
where until > clock_timestamp()
