-- retry_parked: request that the consumer's owner retries parked events.
-- in:  $1 consumer, $2 positions int8[] or null for all
-- out: position

with wanted as (
    update {schema}.parked set wanted_at = now()
    where consumer = $1 and ($2::int8[] is null or position = any($2))
    returning position
),
notified as materialized (select pg_notify({schema}.log_channel(), 'assigned') from wanted limit 1)
select w.position from wanted w where (select count(*) from notified) >= 0 order by 1
