-- remember_position: how far a loop written by hand got.
-- in:  $1 position int8

insert into {schema}.bench_position as p (one, position) values (true, $1)
on conflict (one) do update set position = excluded.position
