-- lock_checkpoints: lock the checkpoints of two consumers, so that neither changes before this transaction ends.
-- in:  $1 consumers text[]
-- out: consumer, position

select k.consumer, k.position
from {schema}.checkpoint k
where k.consumer = any($1::text[])
order by k.consumer, k.part
for update
