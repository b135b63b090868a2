-- claim_rows: note which rows a worker is about to be given. Not worth a flush to disk: what is forgotten is reset.
-- in:  $1 token int8, $2 node int, $3 name of the table, $4 keys json

insert into {schema}.row_lease (token, node, store, ids)
select $1::int8, $2::int, $3::text, $4::json
from set_config('synchronous_commit', 'off', true)
