-- schedule_take: put a declaration in force. The row is locked. Later declarations, which no node repeats, are withdrawn.
-- in:  $1 name, $2 declaration text, $3 kind, $4 cron, $5 zone, $6 the next slot timestamptz

with withdrawn as (
    update {schema}.schedule_declaration d
    set withdrawn = true
    from {schema}.schedule_declaration m
    where m.name = $1 and m.declaration = $2 and d.name = $1 and d.declared_at > m.declared_at and not d.withdrawn
)
update {schema}.schedule
set declaration = $2, kind = $3, cron = $4, zone = $5, slot_at = $6, error = null, failed_at = null
where name = $1
