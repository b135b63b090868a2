-- consumers: every partition, with its owner, position and state.
-- in:  $1 head int8, $2 seconds after which a silent node is dead float8
-- out: the fields of ConsumerRow

select c.name as consumer, s.part, c.partitions, c.stream_types as "only", c.types,
    case when c.paused then 'paused'
         when k.halted then 'halted'
         when s.node is null and not exists (
            select from {schema}.node a
            where a.state in ('idle', 'busy') and a.beat_at > clock_timestamp() - $2::float8 * interval '1 second'
              and a.consumers::jsonb ? c.name) then 'unassigned'
         when s.node is null then 'waiting'
         when n.state = 'offline' or n.beat_at is null or n.beat_at < clock_timestamp() - $2::float8 * interval '1 second' then 'silent'
         when k.failures > 0 then 'retrying'
         when c.upto is not null then 'reshaping'
         else 'running' end as state,
    s.node, n.name as node_name, s.assigned_at, k.position, greatest(0, $1::int8 - k.position) as lag,
    case when k.position < $1::int8 then greatest(0, extract(epoch from clock_timestamp() - (
        select e.at from {schema}.event e where e.position > k.position and e.position <= $1::int8
        order by e.position limit 1))::float8) end as lag_seconds,
    case when k.updated_at > clock_timestamp() - interval '1 minute' then k.rate else 0 end as rate,
    k.handled, k.failures, k.error_position, k.error, k.message, k.traceback, k.error_at,
    (select count(*) from {schema}.parked p where p.consumer = c.name and p.part = s.part) as parked,
    c.paused_by, c.upto, k.updated_at
from {schema}.consumer c
join {schema}.consumer_partition s on s.consumer = c.name
join {schema}.checkpoint k on k.consumer = c.name and k.part = s.part
left join {schema}.node n on n.id = s.node
order by c.name, s.part
