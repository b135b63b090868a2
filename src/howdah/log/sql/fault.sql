-- fault: note that a consumer failed on an event. No row: the share is not ours any more.
-- in:  $1 consumer, $2 part, $3 node, $4 epoch, $5 failures, $6 halted, $7 error position, $8 error, $9 message, $10 traceback
-- out: noted

update {schema}.checkpoint k
set failures = $5, halted = $6, error_position = $7, error = $8, message = $9, traceback = $10,
    error_at = clock_timestamp(), updated_at = clock_timestamp()
where k.consumer = $1 and k.part = $2::int
  and exists (
    select from {schema}.share s
    where s.consumer = $1 and s.part = $2::int and s.node = $3::int and s.epoch = $4::int8)
returning true as noted
