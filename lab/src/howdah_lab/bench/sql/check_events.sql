-- check_events: what is in the log and in its twin.
-- out: events, torn (streams whose versions are not 1, 2, 3, …), plain

select
    (select count(*) from {schema}.event) as events,
    (select count(*) from (
        select from {schema}.event group by stream_type, stream_id
        having min(version) <> 1 or max(version) <> count(*)) t) as torn,
    (select count(*) from {schema}.bench_event) as plain
