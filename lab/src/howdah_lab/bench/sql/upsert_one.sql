-- upsert_one: what a consumer does with one event.
-- in:  $1 user int8, $2 email

insert into {schema}.bench_model as m (user_id, email, times) values ($1, $2, 1)
on conflict (user_id) do update set email = excluded.email, times = m.times + 1
