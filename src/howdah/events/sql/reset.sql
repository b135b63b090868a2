-- reset: move a consumer to a position; running batches are rejected at their commit. No row: no consumer has this name or partition.
-- in:  $1 consumer, $2 part or null for all, $3 position int8
-- out: part

with moved as (
    update {schema}.checkpoint k
    set position = $3, failures = 0, halted = false, error_position = null, error = null, message = null,
        traceback = null, error_at = null, updated_at = clock_timestamp()
    where k.consumer = $1 and ($2::int is null or k.part = $2)
    returning k.part
),
fenced as (
    update {schema}.consumer_partition s set epoch = s.epoch + 1
    where s.consumer = $1 and s.part = any(array(select part from moved))
)
select part, pg_notify({schema}.log_channel(), 'assigned') from moved
