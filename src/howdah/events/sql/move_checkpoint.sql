-- move_checkpoint: move a checkpoint, as the last statement of a batch. No row: this node no longer owns the partition,
-- or it was moved.
-- in:  $1 consumer, $2 part, $3 node, $4 epoch, $5 from int8, $6 to int8, $7 events, $8 rate float8, $9 run int8
-- out: settled
--
-- The comparison with the old position makes a batch apply once: two owners take turns on this row, and the second
-- finds another position. The epoch rejects a zombie early. In another run of the server the
-- events up to the new position may be others than those that were handled.

update {schema}.checkpoint k
set position = $6, handled = k.handled + $7, rate = $8, failures = 0, error_position = null, error = null,
    message = null, traceback = null, error_at = null, updated_at = clock_timestamp()
where k.consumer = $1 and k.part = $2::int and k.position = $5 and {schema}.server_run() = $9::int8
  and exists (
    select from {schema}.consumer_partition s
    where s.consumer = $1 and s.part = $2::int and s.node = $3::int and s.epoch = $4::int8)
returning true as settled
