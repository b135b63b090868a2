-- job: all that a claim goes by, of one job.
-- in:  $1 id int8, $2 characters of texts int
-- out: the fields of JobFacts, or nothing
--
-- OFFSET 0 keeps the view a lookup by id. Queue, kind and priority are those a claim sees. A moment that Python cannot
-- read is shown as the nearest it can; greatest() would turn the null of a job in the queue into one, too.

select v.id, coalesce(r.queue, l.queue, v.queue) as queue, coalesce(r.kind, l.kind, v.kind) as kind, v.state,
    coalesce(r.priority, l.priority, v.priority) as priority, v.attempt, v.max_attempts, v.enqueued_at,
    least(greatest(v.run_at, '0001-01-02 00:00+00'), '9999-12-29 00:00+00') as run_at,
    v.started_at,
    v.finished_at, v.expires_at, left(v.error, $2::int) as error, clock_timestamp() as now,
    v.node, n.name as node_name, n.state as node_state, n.remote,
    extract(epoch from clock_timestamp() - n.beat_at)::float8 as silent,
    case when l.id is not null then least(greatest(l.due_at, '0001-01-02 00:00+00'), '9999-12-29 00:00+00') end as due_at,
    r.rid, r.lo,
    q.paused_at, left(q.paused_by, $2) as paused_by, coalesce(q.paused, false) as paused,
    h.until as held_until, left(h.reason, $2) as held_for,
    c.asked_at, left(v.key, $2) as key, k.id as key_holder,
    a.outcome as last_outcome, left(concat_ws(': ', a.error, a.message), $2) as last_error
from (select * from {schema}.jobs j where j.id = $1 offset 0) v
left join {schema}.node n on n.id = v.node
left join {schema}.later l on l.id = v.id
left join lateral (
    select z.*
    from (select y.rid, y.lo, y.queue, y.kind, y.priority from {schema}.ready y where y.hi > v.id order by y.hi limit 1) z
    where z.lo <= v.id) r on true
left join {schema}.queue q on q.name = coalesce(r.queue, l.queue, v.queue)
left join {schema}.hold h on h.kind = v.kind and h.until > clock_timestamp()
left join {schema}.cancel_request c on c.id = v.id
left join {schema}.job_key k on k.key = v.key and k.id <> v.id
left join lateral (
    select y.outcome, y.error, y.message
    from {schema}.attempt y
    where y.id = v.id
    order by y.ended_at desc, y.attempt desc
    limit 1) a on true
