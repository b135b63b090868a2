-- relay: notices become jobs that deliver them.
-- in:  $1 webhooks text[], $2 the kind of job of each text[], $3 the queue, $4 attempts int, $5 timeout seconds float8,
--      $6 most that wait for their start int
-- out: how many
--
-- The deletion of a notice and its job are one statement: whoever dies in here did both or neither. What another node is
-- at is left to it.

with taken as (
    delete from {schema}.notice
    where id = any(array(
        select n.id
        from {schema}.notice n
        where n.webhook = any($1::text[])
        order by n.id
        limit greatest(0, $6::int - (select coalesce(sum(r.hi - r.lo), 0) from {schema}.ready r where r.queue = $3))
        for update skip locked))
    returning webhook, event, at, mark, subject
)
select count(made.id)
from taken t
join unnest($1::text[], $2::text[]) h(webhook, kind) on h.webhook = t.webhook
cross join lateral {schema}.enqueue(
    kind => h.kind,
    args => json_build_object(
        'id', t.mark, 'event', t.event, 'at', to_char(t.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'subject', t.subject),
    queue => $3,
    max_attempts => $4::int,
    timeout => $5::float8) made
