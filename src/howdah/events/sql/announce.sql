-- announce: write what this node can consume, and notify the leader.
-- in:  $1 node int, $2 consumers json text: name to partitions, $3 declared json text: name to the digest of its filter

with announced as (
    update {schema}.node set consumers = $2::text::json, declared = $3::text::json where id = $1 returning id
)
select pg_notify({schema}.log_channel(), 'assign') from announced
