-- history_surroundings: what else there is after some time: nodes here and gone, lanes, schedules, acts, a log with
-- consumers, a table of one's own. Nodes beat in the future, so that they do not count as dead meanwhile.

insert into {schema}.node (name, state, slots, running, beat_at)
    select format('web-%s:%s', i, 1000 + i), 'busy', 50, 10, now() + interval '1 hour' from generate_series(1, 20) i;
insert into {schema}.node (name, state, slots, stopped_at, beat_at)
    select format('web-%s:%s', i % 20, 2000 + i), 'offline', 50, now() - interval '1 day', now() - interval '1 day'
    from generate_series(1, 200) i;
insert into {schema}.lane select 'queue ' || i, 0 from generate_series(0, 19) i;
insert into {schema}.schedule (name, kind, cron, zone, declaration, slot_at)
    select 'schedule ' || i, 'kind ' || i, '30 2 * * *', 'UTC', 'past', now() + i * interval '1 hour' from generate_series(1, 40) i;
insert into {schema}.audit (at, who, via, verb, thing, ids, count)
    select now() - (20000 - i) * interval '20 seconds', 'ada', 'dashboard', 'retry', 'job', array[i::text], 1
    from generate_series(1, 20000) i;
insert into {schema}.event (version, stream_type, stream_id, type, data)
    select 1 + i % 4, 'Order', (i / 4)::text, 'Placed', json_build_object('user_id', i, 'email', format('user%s@example.com', i))
    from generate_series(0, 99999) i;
insert into {schema}.consumer (name, partitions) select 'consumer ' || i, 1 + i % 3 from generate_series(1, 20) i;
insert into {schema}.consumer_partition (consumer, part, node)
    select c.name, part, 1 + part from {schema}.consumer c cross join lateral generate_series(0, c.partitions - 1) part;
insert into {schema}.checkpoint (consumer, part, position, handled)
    select c.name, part, 90000, 1000 from {schema}.consumer c cross join lateral generate_series(0, c.partitions - 1) part;
insert into {schema}.parked (consumer, position, part, error, message, traceback, failures)
    select 'consumer 1', i, 0, 'ValueError', 'cannot be read', repeat('x', 500), 3 from generate_series(1, 200) i;
insert into {schema}.bench_row (queued_at, finished_at, state)
    select now() - interval '1 day', now() - interval '1 day', case when i % 50 = 0 then 'failed' else 'completed' end
    from generate_series(1, 200000) i;
insert into {schema}.bench_row (queued_at) select now() from generate_series(1, 10000);
