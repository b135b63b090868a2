-- leader: the leader, and whether appends are serialised.
-- out: leader, leader_name, since, exclusive

select n.id as leader, n.name as leader_name, case when n.id is not null then l.since end as since,
    coalesce(pg_sequence_last_value({'schema.log_exclusive'}::regclass), 0) = 1 as exclusive
from {schema}.leader l
left join {schema}.node n on n.id = l.node and l.expires_at > clock_timestamp() and n.state <> 'offline'
