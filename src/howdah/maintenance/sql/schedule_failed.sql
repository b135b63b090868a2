-- schedule_failed: note why the job of a schedule could not be enqueued.
-- in:  $1 name, $2 declaration, $3 error text

update {schema}.schedule
set error = $3, failed_at = clock_timestamp()
where name = $1
  and declaration = $2
  and error is distinct from $3::text
