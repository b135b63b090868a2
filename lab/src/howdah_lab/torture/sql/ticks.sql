-- ticks: every job that a schedule enqueued.
-- out: schedule, release, slot and at (when it was enqueued), both in seconds since 1970

select args ->> 'schedule' as schedule, args ->> 'release' as release, extract(epoch from run_at)::float8 as slot,
    extract(epoch from enqueued_at)::float8 as at
from {schema}.job
where kind = 'tick'
order by run_at, id
