-- take_keys: claim unique keys for a bulk enqueue, each for its job, or name the live job that holds it.
-- in:  $1 keys text[], $2 ids int8[], $3 how long to wait for a key that an open transaction holds, as a lock_timeout; null: no bound
-- out: id, holder (the id itself where the key was free)

select id, holder from {schema}.take_keys($1::text[], $2::int8[], $3::text)
