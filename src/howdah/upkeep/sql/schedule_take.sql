-- schedule_take: put a declaration in force. The row is locked.
-- in:  $1 name, $2 declaration text, $3 kind, $4 cron, $5 zone, $6 the next slot timestamptz

update {schema}.schedule
set declaration = $2, kind = $3, cron = $4, zone = $5, slot_at = $6, next_at = 'infinity', error = null, failed_at = null,
    writes = writes + 1
where name = $1
