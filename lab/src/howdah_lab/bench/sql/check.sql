-- check: where every job of the schema is.
-- out: jobs, done (successes at the first attempt), other (ended otherwise), waiting, leases, failures, effects,
--      doubled (effects of the same job beyond the first)

select
    (select count(*) from {schema}.job) as jobs,
    (select count(*) from {schema}.done where state = 'd' and attempt = 1) as done,
    (select count(*) from {schema}.done where state <> 'd' or attempt <> 1) as other,
    (select coalesce(sum(hi - lo), 0)::int8 from {schema}.ready) + (select count(*) from {schema}.later) as waiting,
    (select count(*) from {schema}.lease) as leases,
    (select count(*) from {schema}.attempt) as failures,
    (select count(*) from {schema}.bench_effect) as effects,
    (select count(*) - count(distinct job) from {schema}.bench_effect) as doubled
