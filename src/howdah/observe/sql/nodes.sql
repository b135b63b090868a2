-- nodes: the processes that work here.
-- in:  $1 rows int
-- out: the fields of NodeReading; those silent for longest first

select n.id, n.name, n.state, n.version, n.remote, n.deaf, n.slots, n.running,
    extract(epoch from clock_timestamp() - n.started_at)::float8 as age,
    extract(epoch from clock_timestamp() - n.beat_at)::float8 as beat_age
from {schema}.node n
where n.state <> 'offline'
order by n.beat_at
limit $1
