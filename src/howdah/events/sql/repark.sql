-- repark: a parked event failed again, so it stays parked. No row: this node no longer owns
-- the partition, or the event was dropped meanwhile.
-- in:  $1 consumer, $2 part, $3 node, $4 epoch, $5 position, $6 run int8, $7 error, $8 message, $9 traceback
-- out: position

update {schema}.parked p
set error = $7, message = $8, traceback = $9, failures = p.failures + 1, parked_at = now(), wanted_at = null
where p.consumer = $1 and p.position = $5 and p.part = $2::int and p.wanted_at is not null
  and {schema}.server_run() = $6::int8
  and exists (
    select from {schema}.consumer_partition s
    where s.consumer = $1 and s.part = $2::int and s.node = $3::int and s.epoch = $4::int8)
returning p.position
