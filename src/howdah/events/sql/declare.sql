-- declare: declare a consumer; a new one begins at its start.
-- in:  $1 name, $2 partitions, $3 stream types text[] or null, $4 types text[] or null, $5 start int8, null for the frontier
-- out: the digest of its filter

select {schema}.declare_scope($1, $2::int, $3::text[], $4::text[], $5::int8) as digest
