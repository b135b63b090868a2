-- insert_event: the least an append of one event could be.
-- in:  $1 stream id, $2 version int8, $3 data json as bytes

insert into {schema}.bench_event (stream_type, stream_id, version, type, data)
values ('Order', $1, $2, 'Placed', $3::json)
