-- nodes: the processes that work or worked here.
-- in:  $1 offline ones too bool, $2 rows int
-- out: id, name, state, version, queues, kinds, slots, running, deaf, started_at, beat_at, beat_age (seconds),
--      stopped_at, leases; newest first

select n.id, n.name, n.state, n.version, n.queues, n.kinds, n.slots, n.running, n.deaf, n.started_at, n.beat_at,
    extract(epoch from clock_timestamp() - n.beat_at)::float8 as beat_age, n.stopped_at,
    coalesce(l.leases, 0) as leases
from {schema}.node n
left join (select node, count(*) as leases from {schema}.lease group by node) l on l.node = n.id
where $1::boolean or n.state <> 'offline'
order by n.started_at desc, n.id desc
limit $2
