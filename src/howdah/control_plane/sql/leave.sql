-- leave: deregister a worker: its credential becomes invalid and its leases expire now.
-- in:  $1 id
-- out: gone (1, or 0 if it was gone before), leases (expired by this)

with gone as (
    update {schema}.node set state = 'offline', running = 0, leaving = true, stopped_at = clock_timestamp(), credential = null
    where id = $1 and remote and stopped_at is null
    returning id
),
freed as (
    update {schema}.lease l set expires_at = clock_timestamp() from gone where l.node = gone.id returning 1
)
select (select count(*) from gone) as gone, (select count(*) from freed) as leases
