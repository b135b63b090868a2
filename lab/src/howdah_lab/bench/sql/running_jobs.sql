-- running_jobs: jobs under lease, lo <= id < hi, five to a claim.
-- in:  $1 lo int8, $2 hi int8

with job as (
    insert into {schema}.job (id, queue, kind, args)
    select i, 'queue ' || i % 20, 'kind ' || i % 60, '{}' from generate_series($1::int8, $2::int8 - 1) i
),
lease as (
    insert into {schema}.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
    select 1 + i / 5 % 20, now() + interval '1 hour', i, i + 5, array[i], array[i], array[i + 5], array[1::smallint]
    from generate_series($1, $2 - 5, 5) i
    returning token, first_id
)
insert into {schema}.progress (id, token, share, note) select first_id, token, 0.4, 'page 4 of 10' from lease
