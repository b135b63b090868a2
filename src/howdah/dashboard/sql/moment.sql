-- moment: a value per topic that is another one as soon as something of it changed. Cheap: sequences, small tables
-- and kept counters only; never history.
-- out: jobs, failures, queues, nodes, consumers, schedules

select
    concat_ws(' ',
        (select last_value from {schema}.job_id), (select last_value from {schema}.arrival),
        (select last_value from {schema}.token), (select count(*) from {schema}.lease),
        (select sum(t.jobs) from {schema}.tally t where t.at > now() - interval '3 minutes')) as jobs,
    (select sum(t.jobs) from {schema}.tally t
     where t.at > now() - interval '3 minutes' and t.outcome in ('failed', 'poison'))::text as failures,
    (select md5(string_agg(concat_ws(' ', q.name, q.paused), ',' order by q.name)) from {schema}.queue q) as queues,
    (select md5(string_agg(concat_ws(' ', n.id, n.state, n.running, n.slots, n.deaf), ',' order by n.id))
     from {schema}.node n where n.state <> 'offline') as nodes,
    (select md5(string_agg(concat_ws(' ', c.consumer, c.part, c.position, c.failures, c.halted), ',')) from (
        select * from {schema}.checkpoint order by consumer, part limit 1000) c)
        || (select md5(string_agg(concat_ws(' ', c.name, c.paused), ',' order by c.name)) from {schema}.consumer c) as consumers,
    (select md5(string_agg(concat_ws(' ', s.name, s.slot_at, s.paused, s.error), ',' order by s.name)) from {schema}.schedule s) as schedules
