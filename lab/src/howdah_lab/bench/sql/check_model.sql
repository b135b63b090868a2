-- check_model: what the read model counted.
-- out: users, times

select count(*) as users, coalesce(sum(times), 0)::int8 as times from {schema}.bench_model
