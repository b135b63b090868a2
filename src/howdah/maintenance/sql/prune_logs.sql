-- prune_logs: delete log lines of jobs, and records of runs, past their retention.
-- in:  $1 seconds lines are kept float8, $2 seconds records of runs are kept float8, $3 most int
-- out: lines deleted

with old_lines as (
    delete from {schema}.job_log g
    where g.ctid = any(array(
        select o.ctid from {schema}.job_log o where o.at < now() - $1::float8 * interval '1 second' limit $3::int))
    returning 1
),
old_runs as (
    delete from {schema}.run r
    where r.id = any(array(
        select o.id from {schema}.run o
        where o.started_at < now() - $2::float8 * interval '1 second' and o.state <> 'running'
        order by o.id limit $3::int))
),
old_progress as (
    delete from {schema}.progress p where p.reported_at < now() - $1::float8 * interval '1 second'
)
select count(*) from old_lines
