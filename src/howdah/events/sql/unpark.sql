-- unpark: delete a parked event that was handled; the last statement of its transaction. No row: this node does not own it.
-- in:  $1 consumer, $2 part, $3 node, $4 epoch, $5 position, $6 run int8
-- out: position

delete from {schema}.parked p
where p.consumer = $1 and p.position = $5 and p.part = $2::int and p.wanted_at is not null
  and {schema}.server_run() = $6::int8
  and exists (
    select from {schema}.consumer_partition s
    where s.consumer = $1 and s.part = $2::int and s.node = $3::int and s.epoch = $4::int8)
returning p.position
