-- left: what is not over yet.
-- out: jobs, rows, events: how many wait or run
--
-- Schedules never end, and a job may ask to be run in ten years: neither is waited for.
-- Neither are rows that cannot begin or end.

select
    (select coalesce(sum(hi - lo), 0) from {schema}.ready where kind <> 'tick')
        + (select count(*) from {schema}.later where kind <> 'tick' and due_at < now() + interval '1 hour')
        + (select count(*) from {schema}.lease) as jobs,
    (select count(*) from {run_schema}.rows where state in ('queued', 'errored', 'processing'))
        + (select count(*)
           from {run_schema}.refusing
           where state in ('queued', 'errored', 'processing') and refusal not in ('claim', 'never')) as rows,
    (select count(*)
     from {schema}.checkpoint k
     where k.position < coalesce((select max(e.position) from {schema}.event e), 0)) as events
