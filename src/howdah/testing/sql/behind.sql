-- behind: whether one of these consumers could go on now.
-- in:  $1 consumers text[]
-- out: boolean; not for those that are paused, halted, or wait before they try a failed event again

select exists (
    select
    from {schema}.checkpoint k
    join {schema}.consumer c on c.name = k.consumer
    where k.consumer = any($1::text[]) and not c.paused and not k.halted and k.failures = 0
      and k.position < (select f.safe from {schema}.frontier() f)
)
