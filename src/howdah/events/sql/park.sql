-- park: set an event aside; the caller moves the checkpoint past it in the same transaction.
-- in:  $1 consumer, $2 part, $3 position, $4 error, $5 message, $6 traceback, $7 failures

insert into {schema}.parked (consumer, part, position, error, message, traceback, failures)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (consumer, position) do update
set error = excluded.error, message = excluded.message, traceback = excluded.traceback,
    failures = {schema}.parked.failures + excluded.failures, parked_at = now(), wanted_at = null
