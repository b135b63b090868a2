-- list: all declared webhooks, with their waiting notices and deliveries.
-- in:  $1 the queue of deliveries, $2 prefix of their kind
-- out: name, host, events, queues, kinds, stuck_after, seen_age (seconds), notices, deliveries

select h.name, h.host, h.events, h.queues, h.kinds, h.stuck_after,
    extract(epoch from clock_timestamp() - h.seen_at)::float8 as seen_age,
    (select count(*) from {schema}.notice n where n.webhook = h.name) as notices,
    (select coalesce(sum(r.hi - r.lo), 0) from {schema}.ready r where r.queue = $1 and r.kind = $2 || h.name)::int8
        + (select count(*) from {schema}.later l where l.queue = $1 and l.kind = $2 || h.name) as deliveries
from {schema}.webhook h
order by h.name
