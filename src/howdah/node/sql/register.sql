-- register: a process starts.
-- in:  $1 name, $2 version, $3 queues text[] or null, $4 kinds text[], $5 slots
-- out: id, fresh for every start

insert into {schema}.node (name, version, queues, kinds, slots)
values ($1, $2, $3::text[], $4::text[], $5)
returning id
