-- doctor_expired: expired leases that were not reset.
-- in:  $1 seconds float8
-- out: leases, longest (seconds)

select count(*) as leases, extract(epoch from max(clock_timestamp() - expires_at))::float8 as longest
from {schema}.lease
where expires_at < clock_timestamp() - $1::float8 * interval '1 second'
