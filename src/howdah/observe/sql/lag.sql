-- lag: every consumer, with the state of its worst partition.
-- in:  $1 head int8, $2 seconds after which a silent node is dead float8
-- out: the fields of Standing

select c.name, max(greatest(0, $1::int8 - k.position)) as events,
    coalesce(max(greatest(0, extract(epoch from clock_timestamp() - next.at)::float8)), 0) as seconds,
    bool_or(k.halted) as halted, c.paused,
    bool_or(n.id is null) as unassigned,
    (select count(*) from {schema}.parked p where p.consumer = c.name) as parked
from {schema}.consumer c
join {schema}.consumer_partition s on s.consumer = c.name
join {schema}.checkpoint k on k.consumer = c.name and k.part = s.part
left join {schema}.node n on n.id = s.node and n.state <> 'offline' and n.beat_at > clock_timestamp() - $2::float8 * interval '1 second'
left join lateral (
    select e.at from {schema}.event e where e.position > k.position and e.position <= $1::int8 order by e.position limit 1
) next on true
group by c.name
order by c.name
