-- behind: true if one of these consumers has events to consume now.
-- in:  $1 consumers text[]
-- out: boolean; ignores consumers that are paused, halted, or waiting to retry a failed event

select exists (
    select
    from {schema}.checkpoint k
    join {schema}.consumer c on c.name = k.consumer
    where k.consumer = any($1::text[]) and not c.paused and not k.halted and k.failures = 0
      and k.position < (select f.safe from {schema}.frontier() f)
)
