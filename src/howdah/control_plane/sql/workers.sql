-- workers: the nodes, newest first.
-- in:  $1 id or null for all, $2 state or null for all, $3 limit,
--      $4 queues text[]: only nodes that serve one of them, with or without labels, or a table of that name; null for all
-- out: the fields of WorkerInfo

select n.id, n.name, n.state as status, n.remote, n.version, n.queues, n.kinds, n.tables, n.labels, n.slots, n.running,
    n.started_at, n.beat_at, greatest(0, extract(epoch from clock_timestamp() - n.beat_at))::float8 as silent
from {schema}.node n
where n.id >= coalesce($1::int, 0) and n.id <= coalesce($1::int, 2147483647) and ($2::text is null or n.state = $2)
  and ($4::text[] is null or n.queues is null or n.tables && $4
    or exists (select from unnest(n.queues) q where q = any($4) or split_part(q, '+', 1) = any($4)))
order by n.started_at desc, n.id desc
limit $3
