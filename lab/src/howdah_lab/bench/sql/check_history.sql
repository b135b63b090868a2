-- check_history: where the jobs of the past are.
-- out: ended, waiting, running, astray (in no place)

select
    (select count(*) from {schema}.done) as ended,
    (select coalesce(sum(hi - lo), 0)::int8 from {schema}.ready) + (select count(*) from {schema}.later) as waiting,
    (select coalesce(sum(end_id - first_id), 0)::int8 from {schema}.lease) as running,
    (select count(*) from {schema}.job) - (select count(*) from {schema}.done)
        - (select coalesce(sum(hi - lo), 0)::int8 from {schema}.ready) - (select count(*) from {schema}.later)
        - (select coalesce(sum(end_id - first_id), 0)::int8 from {schema}.lease) as astray
