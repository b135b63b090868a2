-- doctor_leaderless: consumers that wait for a leader although a node that could lead and consume them lives.
-- in:  $1 seconds after which a silent node is dead float8, $2 seconds a node may take to begin float8
-- out: consumer

select distinct s.consumer
from {schema}.consumer_partition s
where not exists (
        select from {schema}.leader l
        join {schema}.node n on n.id = l.node
        where l.expires_at > clock_timestamp() and n.state <> 'offline')
  and not exists (
        select from {schema}.node n
        where n.id = s.node and n.state <> 'offline' and n.beat_at > clock_timestamp() - $1::float8 * interval '1 second')
  and exists (
        select from {schema}.node n
        where n.state in ('idle', 'busy') and n.beat_at > clock_timestamp() - $1::float8 * interval '1 second'
          and n.started_at < clock_timestamp() - $2::float8 * interval '1 second' and n.consumers::jsonb ? s.consumer)
order by s.consumer
