-- insert_events: the least an append of several events could be.
-- in:  $1 stream id, $2 version before int8, $3 data json[] as bytes

insert into {schema}.bench_event (stream_type, stream_id, version, type, data)
select 'Order', $1, $2 + n.place, 'Placed', n.data
from unnest($3::json[]) with ordinality as n(data, place)
order by n.place
