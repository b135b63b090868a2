-- resume: resume a paused or halted consumer at its position. No row: no consumer has this name.
-- in:  $1 consumer
-- out: name, was (whether it was paused or halted)

with before as (
    select c.name, c.paused or exists (select from {schema}.checkpoint k where k.consumer = c.name and k.halted) as was
    from {schema}.consumer c where c.name = $1
),
awake as (
    update {schema}.consumer set paused = false, paused_at = null, paused_by = null where name = $1
),
free as (
    update {schema}.checkpoint set halted = false, failures = 0 where consumer = $1 and halted
)
select name, was, pg_notify({schema}.log_channel(), 'assigned') from before
