-- declare: make a webhook known, or say again that it is.
-- in:  $1 name, $2 host, $3 events text[], $4 queues text[] or null, $5 kinds text[] or null, $6 stuck after seconds float8
--
-- The moment is not written anew when another node has just done so.

insert into {schema}.webhook as h (name, host, events, queues, kinds, stuck_after)
values ($1, $2, $3::text[], $4::text[], $5::text[], $6::float8)
on conflict (name) do update
set host = excluded.host,
    events = excluded.events,
    queues = excluded.queues,
    kinds = excluded.kinds,
    stuck_after = excluded.stuck_after,
    seen_at = now()
where h.seen_at < now() - interval '30 seconds'
   or (h.host, h.events, h.queues, h.kinds, h.stuck_after)
       is distinct from (excluded.host, excluded.events, excluded.queues, excluded.kinds, excluded.stuck_after)
