-- claim_rows: store the lease of a worker on rows. Commits asynchronously: rows of a lost lease are reset.
-- in:  $1 token int8, $2 node int, $3 name of the table, $4 ids json

insert into {schema}.row_lease (token, node, store, ids)
select $1::int8, $2::int, $3::text, $4::json
from set_config('synchronous_commit', 'off', true)
