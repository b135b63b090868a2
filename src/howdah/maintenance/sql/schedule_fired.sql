-- schedule_fired: note what was enqueued, and when the next slot is. The row is locked.
-- in:  $1 name, $2 declaration, $3 the next slot timestamptz, $4 the last slot run timestamptz or null, $5 its job int8 or null

update {schema}.schedule
set slot_at = $3, last_at = coalesce($4, last_at), last_job = coalesce($5, last_job), error = null, failed_at = null
where name = $1
  and declaration = $2
