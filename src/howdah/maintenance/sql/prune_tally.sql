-- prune_tally: add up the minutes of the tally that are older than two days into hours, so that it stays small.
-- in:  $1 most int
-- out: minutes added up
--
-- Nothing reads single minutes of more than a day ago. Hours are those of UTC, whatever the time zone of the session. Older
-- than a week are only hours, so that these are not read again every time.

with minute as (
    delete from {schema}.tally t
    where t.ctid = any(array(
        select o.ctid
        from {schema}.tally o
        where o.at >= now() - interval '7 days'
          and o.at < now() - interval '2 days'
          and o.at <> date_trunc('hour', o.at, 'UTC')
        order by o.at
        limit $1::int
        for update skip locked))
    returning t.at, t.queue, t.kind, t.outcome, t.jobs, t.seconds
),
hour as (
    insert into {schema}.tally as t (at, queue, kind, outcome, jobs, seconds)
    select date_trunc('hour', m.at, 'UTC'), m.queue, m.kind, m.outcome, sum(m.jobs), sum(m.seconds)
    from minute m
    group by 1, 2, 3, 4
    order by 1, 2, 3, 4
    on conflict (at, queue, kind, outcome) do update
    set jobs = t.jobs + excluded.jobs, seconds = t.seconds + excluded.seconds
)
select count(*) from minute
