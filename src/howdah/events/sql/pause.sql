-- pause: pause a consumer on every node. No row: no consumer has this name.
-- in:  $1 consumer, $2 by whom
-- out: name

with done as (
    update {schema}.consumer set paused = true, paused_at = now(), paused_by = $2 where name = $1 returning name
)
select name, pg_notify({schema}.log_channel(), 'assigned') from done
