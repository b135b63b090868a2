-- doctor_misplaced: jobs that are in two places, or in none.
-- in:  $1 newest jobs to look at int, $2 places in history to look at int, $3 jobs at each of them int
-- out: looked (jobs looked at), wrong (ids of at most 20 misplaced ones), overlapping (runs that share a job)
--
-- A job is ready | later | leased (unless gone) | done; a lease still names jobs that are done. One statement is one
-- snapshot, so nothing is seen on the move.

with newest as (
    select j.id from {schema}.job j order by j.id desc limit $1
),
bounds as materialized (
    select (select j.id from {schema}.job j order by j.id limit 1) as first,
        (select j.id from {schema}.job j order by j.id desc limit 1) as last
),
history as (
    select x.id
    from (
        select bounds.first + (random() * (bounds.last - bounds.first))::int8 as start
        from bounds, generate_series(1, $2::int)
    ) place
    cross join lateral (select j.id from {schema}.job j where j.id >= place.start order by j.id limit $3) x
),
sample as materialized (
    select id from newest union select id from history
),
leased as materialized (
    select i.id, count(*) as places
    from {schema}.lease
    cross join lateral unnest(lease.los, lease.his) run(lo, hi)
    cross join lateral generate_series(run.lo, run.hi - 1) i(id)
    where not exists (select from {schema}.gone g where g.token = lease.token and g.id = i.id offset 0)
    group by i.id
),
counted as (
    select sample.id,
        case when exists (select from {schema}.done d where d.id = sample.id offset 0) then 1 else coalesce(leased.places, 0) end
        + case when exists (select from {schema}.later l where l.id = sample.id offset 0) then 1 else 0 end
        + case when (select r.lo from {schema}.ready r where r.hi > sample.id order by r.hi limit 1) <= sample.id
            then 1 else 0 end as places
    from sample
    left join leased on leased.id = sample.id
),
neighbours as (
    select lo, lag(hi) over (order by hi) as previous
    from (select lo, hi from {schema}.ready order by hi desc limit $1) runs
)
select (select count(*) from sample) as looked,
    array(select id from counted where places <> 1 order by id limit 20) as wrong,
    (select count(*) from neighbours where lo < previous) as overlapping
