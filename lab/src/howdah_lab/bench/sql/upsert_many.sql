-- upsert_many: what a consumer does with a whole batch; no user is in it twice.
-- in:  $1 users int8[], $2 emails text[]

insert into {schema}.bench_model as m (user_id, email, times)
select n.user_id, n.email, 1 from unnest($1::int8[], $2::text[]) as n(user_id, email)
on conflict (user_id) do update set email = excluded.email, times = m.times + 1
