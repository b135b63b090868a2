-- relay: turn notices into delivery jobs.
-- in:  $1 webhooks text[], $2 the kind of job of each text[], $3 the queue, $4 attempts int, $5 timeout seconds float8,
--      $6 most queued deliveries int, $7 most deliveries waiting for a retry int; both of each webhook
-- out: number of jobs
--
-- A notice is deleted and its job is added by one statement, so a crash leaves both or neither done. Notices that another
-- node has locked are skipped. Each webhook has bounds of its own, so deliveries to one that does not respond, or that no
-- node declares any more, do not delay the others.

with room as materialized (
    select h.webhook, h.kind,
        case when coalesce(retried.jobs, 0) < $7::int then greatest(0, $6::int - coalesce(ready.jobs, 0)) else 0 end as most
    from unnest($1::text[], $2::text[]) h(webhook, kind)
    left join (select r.kind, sum(r.hi - r.lo) as jobs from {schema}.ready r where r.queue = $3 group by r.kind) ready
        on ready.kind = h.kind
    left join (select l.kind, count(*) as jobs from {schema}.later l where l.queue = $3 group by l.kind) retried
        on retried.kind = h.kind
    where exists (select from {schema}.notice n where n.webhook = h.webhook)
),
taken as (
    delete from {schema}.notice
    where id = any(array(
        select found.id
        from room
        cross join lateral (
            select n.id from {schema}.notice n where n.webhook = room.webhook order by n.id limit room.most for update skip locked
        ) found))
    returning webhook, event, at, mark, subject
)
select count(made)
from taken t
join room on room.webhook = t.webhook
cross join lateral {schema}.enqueue_own(
    kind => room.kind,
    args => json_build_object(
        'id', t.mark, 'event', t.event, 'at', to_char(t.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'subject', t.subject),
    max_attempts => $4::int,
    timeout => $5::float8) made
