-- places: jobs that are in more than one place, or in none; and outcomes of jobs that do not exist.
-- out: id, places (which), jobs that are wrong only

with waiting as (
    select g.id, 'ready' as place from {schema}.ready r cross join lateral generate_series(r.lo, r.hi - 1) g(id)
),
leased as (
    select g.id, 'lease ' || l.token as place
    from {schema}.lease l
    cross join lateral unnest(l.los, l.his) u(lo, hi)
    cross join lateral generate_series(u.lo, u.hi - 1) g(id)
    where not exists (select from {schema}.gone x where x.token = l.token and x.id = g.id)
      and not exists (select from {schema}.done d where d.id = g.id)
),
found as (
    select id, place from waiting
    union all
    select id, place from leased
    union all
    select id, 'later' from {schema}.later
    union all
    select id, 'done' from {schema}.done
)
select j.id, coalesce(array_agg(f.place) filter (where f.place is not null), '{}') as places
from {schema}.job j
left join found f on f.id = j.id
group by j.id
having count(f.place) <> 1
union all
select d.id, '{done without a job}' from {schema}.done d where not exists (select from {schema}.job j where j.id = d.id)
limit 100
