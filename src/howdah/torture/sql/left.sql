-- left: what is not over yet.
-- out: jobs, rows, events: how many wait or run

select
    (select coalesce(sum(hi - lo), 0) from {schema}.ready) + (select count(*) from {schema}.later)
        + (select count(*) from {schema}.lease) as jobs,
    (select count(*) from {yard}.rows where state in ('queued', 'errored', 'processing')) as rows,
    (select count(*)
     from {schema}.checkpoint k
     where k.position < coalesce((select max(e.position) from {schema}.event e), 0)) as events
