-- history_jobs: jobs of the last six days, lo <= id < hi, enqueued evenly over them.
-- in:  $1 lo int8, $2 hi int8, $3 all of them int8

insert into {schema}.job (id, enqueued_at, queue, kind, key, args)
select i, now() - interval '6 days' * (1 - i::float8 / $3::int8), 'queue ' || i % 20, 'kind ' || i % 60,
    case when i % 100 = 0 then 'key ' || i end,
    json_build_object('user_id', 100000 + i, 'email', format('user%s@example.com', i), 'template', 'welcome',
        'number', i % 17, 'tags', array['a', 'b'])
from generate_series($1::int8, $2::int8 - 1) i
