-- doctor_nodes: the nodes that count as working.
-- in:  $1 seconds of silence float8
-- out: live, silent (names), deaf (names), versions of live ones

select count(*) filter (where not late) as live,
    coalesce(array_agg(name order by name) filter (where late), '{}') as silent,
    coalesce(array_agg(name order by name) filter (where deaf and not late), '{}') as deaf,
    coalesce(array_agg(distinct version) filter (where not late), '{}') as versions
from (
    select name, version, deaf, beat_at < clock_timestamp() - $1::float8 * interval '1 second' as late
    from {schema}.node
    where state <> 'offline'
) nodes
