-- register: a process starts.
-- in:  $1 name, $2 version, $3 queues text[] or null, $4 kinds text[], $5 slots, $6 labels text[],
--      $7 limits json text: queue to the most of its jobs at once, or null, $8 seconds between two looks float8
-- out: id, fresh for every start

insert into {schema}.node (name, version, queues, kinds, slots, labels, limits, poll)
values ($1, $2, $3::text[], $4::text[], $5, $6::text[], $7::text::json, $8)
returning id
