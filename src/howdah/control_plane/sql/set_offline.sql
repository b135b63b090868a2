-- set_offline: set workers offline that sent no heartbeat for too long, and expire their leases. Safe in every replica.
-- in:  $1 seconds float8
-- out: ids

with gone as (
    update {schema}.node set state = 'offline', running = 0
    where remote and state <> 'offline' and beat_at < clock_timestamp() - $1::float8 * interval '1 second'
    returning id
),
freed as (
    update {schema}.lease l set expires_at = clock_timestamp()
    where l.node = any(array(select id from gone)) and l.expires_at > clock_timestamp()
)
select id from gone
