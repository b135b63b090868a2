-- list_held: the live job that holds a key.
-- in:  $1 key, $2 state 'queued' or 'running', $3 before int8, $4 queue, $5 kind (each text or null)
-- out: id, or nothing

select k.id
from {schema}.job_key k
cross join lateral (select * from {schema}.jobs j where j.id = k.id offset 0) v
where k.key = $1
  and v.state = $2
  and k.id < $3
  and ($4::text is null or v.queue = $4)
  and ($5::text is null or v.kind = $5)
