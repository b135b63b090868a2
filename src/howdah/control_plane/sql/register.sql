-- register: register a worker that works over HTTP.
-- in:  $1 name, $2 version, $3 queues text[] or null, $4 kinds text[], $5 slots, $6 tables text[], $7 labels text[], $8 credential bytea,
--      $9 id of its API token int or null, $10 random id int
-- out: id; no row if another node has this id

insert into {schema}.node (id, name, version, queues, kinds, slots, tables, labels, credential, api_token, remote)
values ($10, $1, $2, $3::text[], $4::text[], $5, $6::text[], $7::text[], $8, $9, true)
on conflict (id) do nothing
returning id
