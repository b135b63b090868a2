-- register: add a node that starts, or one whose row is gone.
-- in:  $1 id int, drawn at random by the process, $2 name, $3 version, $4 queues text[] or null, $5 kinds text[], $6 slots,
--      $7 labels text[], $8 limits json text: queue to the most of its jobs at once, or null, $9 seconds between two looks float8
-- out: id; no row if another node has it

insert into {schema}.node (id, name, version, queues, kinds, slots, labels, limits, poll)
values ($1, $2, $3, $4::text[], $5::text[], $6, $7::text[], $8::text::json, $9)
on conflict do nothing
returning id
