-- set_offline: set workers offline that sent no heartbeat for too long, and expire their leases. Safe in every replica.
-- in:  $1 seconds float8, $2 the server's time after which none is set offline float8 (seconds since 1970), see note_contact
-- out: ids

with gone as (
    update {schema}.node set state = 'offline', running = 0
    where remote and state <> 'offline' and beat_at < clock_timestamp() - $1::float8 * interval '1 second'
      and extract(epoch from clock_timestamp()) <= $2::float8
    returning id
),
freed as (
    update {schema}.lease l set expires_at = clock_timestamp()
    where l.node = any(array(select id from gone)) and l.expires_at > clock_timestamp()
)
select id from gone
