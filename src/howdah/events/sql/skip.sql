-- skip: move a consumer past the event it failed on. No row: it failed on none, or not on the one given.
-- in:  $1 consumer, $2 part or null for all that failed, $3 the positions of the events it must have failed on int8[], or null
-- out: part, position (of the event left out)

with moved as (
    update {schema}.checkpoint k
    set position = k.error_position, failures = 0, halted = false, error_position = null, error = null, message = null,
        traceback = null, error_at = null, updated_at = clock_timestamp()
    where k.consumer = $1 and ($2::int is null or k.part = $2) and k.error_position > k.position
      and ($3::int8[] is null or k.error_position = any($3))
    returning k.part, k.position
),
fenced as (
    update {schema}.consumer_partition s set epoch = s.epoch + 1
    where s.consumer = $1 and s.part = any(array(select part from moved))
)
select part, position, pg_notify({schema}.log_channel(), 'assigned') from moved
