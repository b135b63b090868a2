-- consumer: how every part of one consumer stands.
-- in:  $1 consumer, $2 frontier int8, $3 characters of texts int
-- out: the fields of Part, by part; nothing when there is no such consumer

select s.part, c.partitions, c.paused, c.paused_at, left(c.paused_by, $3::int) as paused_by, c.upto, clock_timestamp() as now,
    s.node, n.name as node_name, n.state as node_state, extract(epoch from clock_timestamp() - n.beat_at)::float8 as silent,
    k.position, greatest(0, $2::int8 - k.position) as behind, k.halted, k.failures, k.error_position, k.error_at,
    left(concat_ws(': ', k.error, k.message), $3) as error,
    case when k.updated_at > clock_timestamp() - interval '1 minute' then k.rate else 0 end as rate,
    (select count(*) from {schema}.parked p where p.consumer = c.name and p.part = s.part) as parked
from {schema}.consumer c
join {schema}.consumer_partition s on s.consumer = c.name
join {schema}.checkpoint k on k.consumer = c.name and k.part = s.part
left join {schema}.node n on n.id = s.node
where c.name = $1
order by s.part
