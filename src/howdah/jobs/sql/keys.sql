-- keys: claim unique keys for a bulk enqueue. Ordered, so that two producers cannot deadlock.
-- in:  $1 keys text[], $2 ids int8[]
-- out: the ids that may be enqueued

insert into {schema}.job_key (key, id)
select key, id from unnest($1::text[], $2::int8[]) x(key, id) order by key
on conflict do nothing
returning id
