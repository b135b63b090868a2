-- schedule_fired: note what was enqueued, and when the next slot is.
-- in:  $1 name, $2 the next slot timestamptz, $3 the last slot run timestamptz or null, $4 its job int8 or null

update {schema}.schedule
set next_at = $2, last_at = coalesce($3, last_at), last_job = coalesce($4, last_job)
where name = $1
