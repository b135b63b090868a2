-- nodes: the nodes that have not said goodbye, with all that decides what they take.
-- in:  $1 limit int
-- out: the fields of NodeFacts, the newest first

select n.id, n.name, n.state = 'draining' or n.leaving as draining, n.version, n.queues, n.kinds, n.labels, n.slots, n.beside,
    n.limits::text as limits, n.poll, n.deaf, n.remote, n.tables,
    greatest(0, extract(epoch from clock_timestamp() - n.beat_at))::float8 as silent
from {schema}.node n
where n.state <> 'offline'
order by n.started_at desc, n.id desc
limit $1
