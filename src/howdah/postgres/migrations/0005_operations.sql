-- 0005: operations: actions on jobs and queues, search, self-repair, schedules, audit, dashboard sessions, webhooks.

-- ================================================================ actions on jobs

-- Actions take, beside the ids, the state in which the caller saw each job, and for an ended job the moment it ended. A job
-- that has changed since is left alone and answered with `changed`. Null: whatever its state.

-- A job that was taken out of where it waited; due_at is null if it was ready.
create type {schema}.waiting as (
    id bigint, rid bigint, due_at timestamptz, priority smallint, attempt smallint, queue text, kind text);

-- forget: make every lease that still names one of these jobs forget it: neither a late ack nor a reset counts it any more.
--
-- The caller has locked or deleted the row in `done`, or has taken the job out of where it waited, so no new lease can name it.
create function {schema}.forget(p_ids bigint[]) returns void
language sql set search_path = pg_catalog, pg_temp set enable_hashjoin = on set enable_nestloop = off as $howdah$
    insert into {schema}.gone
    select l.token, l.id
    from {schema}.leased(
        (select min(x) from unnest(p_ids) x),
        (select max(x) + 1 from unnest(p_ids) x)) l
    join unnest(p_ids) i(id) on i.id = l.id
    order by l.token, l.id
    on conflict do nothing
$howdah$;

-- take_waiting: take waiting jobs out of `ready` and `later`, in their order. The caller puts them elsewhere in the same
-- transaction.
-- in:  p_ids     jobs; those that do not wait are left out
--      p_queue   only jobs that wait in this queue; null: in any
-- out: the jobs taken
--
-- The runs are locked first and read by a later statement, because a claim that committed meanwhile has taken their heads.
-- Jobs that were moving between places are searched for again.
create function {schema}.take_waiting(p_ids bigint[], p_queue text) returns setof {schema}.waiting
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = on as $howdah$
#variable_conflict use_column
declare
    rest bigint[] := array(select distinct x from unnest(p_ids) x order by x);
    runs bigint[];
    hits bigint[];
    ends bigint[];
begin
    perform {schema}.require_read_committed();
    for try in 1..3 loop
        exit when cardinality(rest) = 0;
        runs := array(
            select r.hi from {schema}.ready r
            where r.hi = any(array(
                select distinct c.hi
                from unnest(rest) i(id)
                cross join lateral (select y.lo, y.hi, y.queue from {schema}.ready y where y.hi > i.id order by y.hi limit 1) c
                where c.lo <= i.id and c.queue = coalesce(p_queue, c.queue)))
            order by r.hi for update);
        select coalesce(array_agg(i.id order by i.id), '{}'), coalesce(array_agg(c.hi order by i.id), '{}') into hits, ends
        from unnest(rest) i(id)
        cross join lateral (select y.lo, y.hi, y.queue from {schema}.ready y where y.hi > i.id order by y.hi limit 1) c
        where c.lo <= i.id and c.hi = any(runs) and c.queue = coalesce(p_queue, c.queue);
        return query
        with run as (
            delete from {schema}.ready r where r.hi = any(ends) returning r.*
        ),
        hit as materialized (
            select w.id, run.* from unnest(hits, ends) w(id, at) join run on run.hi = w.at
        ),
        -- the rest of the runs keeps its place
        kept as (
            insert into {schema}.ready (rid, lo, hi, priority, attempt, queue, kind)
            select p.rid, p.lo, p.hi, p.priority, p.attempt, p.queue, p.kind
            from (
                select h.id + 1 as lo, coalesce(lead(h.id) over (partition by h.hi order by h.id), h.hi) as hi,
                    h.rid, h.priority, h.attempt, h.queue, h.kind
                from hit h
                union all
                select h.lo, min(h.id), h.rid, h.priority, h.attempt, h.queue, h.kind
                from hit h
                group by h.lo, h.hi, h.rid, h.priority, h.attempt, h.queue, h.kind
            ) p
            where p.lo < p.hi
            order by p.rid, p.lo
        )
        select h.id, h.rid, null::timestamptz, h.priority, h.attempt, h.queue, h.kind from hit h order by h.rid, h.id;
        rest := array(select x from unnest(rest) x except select x from unnest(hits) x order by 1);

        hits := array(
            select l.id from {schema}.later l
            where l.id = any(rest) and l.queue = coalesce(p_queue, l.queue)
            order by l.id for update);
        return query
        with out as (
            delete from {schema}.later l where l.id = any(hits) returning l.*
        )
        select o.id, null::bigint, o.due_at, o.priority, o.attempt, o.queue, o.kind from out o order by o.due_at, o.id;
        rest := array(select x from unnest(rest) x except select x from unnest(hits) x order by 1);
    end loop;
end $howdah$;

-- move_or_reprioritize: give waiting jobs another queue, another priority, or both.
-- in:  p_ids
--      p_from        only jobs that wait in this queue; null: in any
--      p_queue       null: unchanged
--      p_priority    null: unchanged
--      p_did         the answer for jobs that were changed
-- out: id, result    p_did, same, running, over, changed or unknown
--      was_queue, was_priority   before
--
-- The jobs arrive anew in their new lane, in the order they had. Jobs in `later` stay there.
create function {schema}.move_or_reprioritize(p_ids bigint[], p_from text, p_queue text, p_priority int, p_did text)
returns table (id bigint, result text, was_queue text, was_priority int)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    ids   bigint[] := array(select distinct x from unnest(p_ids) x order by x);
    same  bigint[];
    taken {schema}.waiting[];
begin
    if p_queue is not null and (length(p_queue) not between 1 and 100 or p_queue ~ '[[:cntrl:]]') then
        raise exception 'howdah: queue must be 1 to 100 characters, got %', quote_literal(p_queue) using errcode = 'invalid_parameter_value';
    elsif p_priority not between -100 and 100 then
        raise exception 'howdah: priority must be from -100 to 100, got %', p_priority using errcode = 'invalid_parameter_value';
    end if;
    -- jobs that have this queue and priority already keep their place
    same := array(
        select j.id from unnest(ids) i(id) join {schema}.job j on j.id = i.id
        where j.queue = coalesce(p_queue, j.queue) and j.priority = coalesce(p_priority, j.priority)
          and j.queue = coalesce(p_from, j.queue)
          and not exists (select from {schema}.done d where d.id = j.id));
    taken := array(
        select t from {schema}.take_waiting(array(select x from unnest(ids) x except select x from unnest(same) x), p_from) t);
    update {schema}.job j
    set queue = coalesce(p_queue, j.queue), priority = coalesce(p_priority, j.priority)
    from unnest(taken) t
    where j.id = t.id;
    with placed as materialized (
        select t.id, t.due_at, t.attempt, t.kind, coalesce(p_queue, t.queue) as queue,
            coalesce(p_priority::smallint, t.priority) as priority, t.place
        from unnest(taken) with ordinality t(id, rid, due_at, priority, attempt, queue, kind, place)
    ),
    runs as (
        insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
        select min(p.id), max(p.id) + 1, p.priority, p.attempt, p.queue, p.kind
        from (
            select *, id - row_number() over (partition by queue, kind, priority, attempt order by id) as g
            from placed where due_at is null
        ) p
        group by p.queue, p.kind, p.priority, p.attempt, p.g
        order by min(p.place)
    ),
    delayed as (
        insert into {schema}.later (id, due_at, priority, attempt, queue, kind)
        select p.id, p.due_at, p.priority, p.attempt, p.queue, p.kind from placed p where p.due_at is not null
    )
    insert into {schema}.lane
    select distinct p.queue, p.priority from placed p
    where not exists (select from {schema}.lane l where l.queue = p.queue and l.priority = p.priority);
    perform {schema}.notify_workers(q.queue) from (select distinct coalesce(p_queue, t.queue) as queue from unnest(taken) t) q;
    return query
    select t.id, p_did, t.queue, t.priority::int from unnest(taken) t
    union all
    select i.id,
        case when j.id is null then 'unknown'
             when exists (select from {schema}.done d where d.id = i.id) then 'over'
             when i.id = any(same) then 'same'
             when j.queue <> p_from then 'changed'
             else 'running' end,
        null, null
    from (select x from unnest(ids) x except select t.id from unnest(taken) t) i(id)
    left join lateral (select j.id, j.queue from {schema}.job j where j.id = i.id offset 0) j on true
    order by 1;
end $howdah$;

-- reprioritize: give waiting jobs another priority.
create function {schema}.reprioritize(p_ids bigint[], p_priority int)
returns table (id bigint, result text, was_queue text, was_priority int)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.move_or_reprioritize(p_ids, null, null, p_priority, 'reprioritized')
$howdah$;

-- move: move waiting jobs to another queue.
create function {schema}.move(p_ids bigint[], p_queue text)
returns table (id bigint, result text, was_queue text, was_priority int)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.move_or_reprioritize(p_ids, null, p_queue, null, 'moved')
$howdah$;

-- cancel_seen: cancel jobs. Waiting jobs end at once; for running jobs (or jobs between places) the request is stored: the
-- heartbeat tells their node, and retry, release and reset turn it into `cancelled`.
-- in:  p_ids, p_states   queued, running, or null for any
--      p_queue           only jobs that wait in this queue; null: in any
-- out: id, result        cancelled, asked, over, changed or unknown
--
-- A job that was seen waiting is not interrupted while it runs, and one that was seen running is not ended where it waits.
create function {schema}.cancel_seen(p_ids bigint[], p_states text[], p_queue text default null)
returns table (id bigint, result text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    ids       bigint[];
    states    text[];
    open      bigint[];
    requested bigint[];
    ended     bigint[];
    used      smallint[];
begin
    perform {schema}.require_read_committed();
    select coalesce(array_agg(s.id order by s.id), '{}'), coalesce(array_agg(s.state order by s.id), '{}') into ids, states
    from (select distinct on (s.id) s.id, s.state from unnest(p_ids, p_states) s(id, state) where s.id is not null order by s.id) s;
    open := array(
        select s.id from unnest(ids) s(id)
        where exists (select from {schema}.job j where j.id = s.id offset 0)
          and not exists (select from {schema}.done d where d.id = s.id offset 0)
        order by 1);
    -- The request is written first: a job on its way back to the queue is then cancelled by one side or the other.
    requested := array(
        select s.id from unnest(ids, states) s(id, state)
        where s.id = any(open)
          and (s.state is null
            or s.state = 'running'
              and not exists (select from {schema}.later l where l.id = s.id offset 0)
              and coalesce((select r.lo from {schema}.ready r where r.hi > s.id order by r.hi limit 1) > s.id, true))
        order by 1);
    insert into {schema}.cancel_request (id) select x from unnest(requested) x order by x on conflict do nothing;
    select coalesce(array_agg(t.id), '{}'), coalesce(array_agg(t.attempt), '{}') into ended, used
    from {schema}.take_waiting(
        array(select s.id from unnest(ids, states) s(id, state) where s.id = any(open) and (s.state is null or s.state = 'queued')),
        p_queue) t;
    insert into {schema}.done (id, attempt, state, error)
    select e.id, e.attempt, 'c', 'cancelled while waiting' from unnest(ended, used) e(id, attempt);
    delete from {schema}.job_key k
    where k.key = any(array(select j.key from {schema}.job j where j.id = any(ended) and j.key is not null)) and k.id = any(ended);
    -- a job that was deleted while we waited needs no request
    requested := array(select x from unnest(requested) x where exists (select from {schema}.job j where j.id = x offset 0) order by 1);
    delete from {schema}.cancel_request c
    where c.id = any(open)
      and (c.id = any(ended) or not exists (select from {schema}.job j where j.id = c.id offset 0));
    return query
    select s.id,
        case when s.id = any(ended) then 'cancelled'
             when s.id = any(requested) then 'asked'
             when not exists (select from {schema}.job j where j.id = s.id offset 0) then 'unknown'
             when s.state is null then 'over'
             else 'changed' end
    from unnest(ids, states) s(id, state)
    order by 1;
end $howdah$;

-- cancel: cancel jobs, whatever their state.
create function {schema}.cancel(p_ids bigint[]) returns table (id bigint, result text)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.cancel_seen(p_ids, null)
$howdah$;

-- apply_cancel_requests: apply cancel requests that missed their job: it was moving between places when it was cancelled, and
-- neither transaction saw what the other had not committed yet. The job waits now and would be started once more.
-- in:  most   jobs per call
-- out: jobs cancelled
create function {schema}.apply_cancel_requests(most int default 1000) returns int
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms'
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
declare
    missed bigint[];
begin
    delete from {schema}.cancel_request c where exists (select from {schema}.done d where d.id = c.id);
    missed := array(
        select c.id from {schema}.cancel_request c
        where exists (select from {schema}.later l where l.id = c.id)
           or (select r.lo from {schema}.ready r where r.hi > c.id order by r.hi limit 1) <= c.id
        order by c.id limit most);
    if cardinality(missed) > 0 then
        perform {schema}.cancel(missed);
    end if;
    return cardinality(missed);
end $howdah$;

-- retry_seen: queue failed or cancelled jobs again, with no attempt used.
-- in:  p_ids, p_states, p_ended   failed or cancelled, and when they ended; null for any
-- out: id, result   queued, done, live, changed, unknown, or: key held by job n
--      was          the state in which the job had ended
--
-- It locks no lease: a caller's transaction that stays open would block the heartbeat, and with it every job of the node.
-- Instead: an ack that came before is visible as the row in `done` that is locked here; one that comes later sees `gone` and
-- no row in `done`, or neither of the two changes, because both are one commit; ack_in_transaction and ack_keyless, which
-- wait for this commit where they insert into `done`, read `gone` once more after that.
--
-- Keys come first: a key that an open transaction holds is waited for while nothing else is locked.
create function {schema}.retry_seen(p_ids bigint[], p_states text[], p_ended timestamptz[])
returns table (id bigint, result text, was text)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $howdah$
#variable_conflict use_column
declare
    ids    bigint[];
    states text[];
    moment timestamptz[];
    bad    bigint[];
    keyed  bigint[];
    keys   text[];
    got    bigint[];
    back   bigint[];
    was    "char"[];
begin
    perform {schema}.require_read_committed();
    select coalesce(array_agg(s.id order by s.id), '{}'), coalesce(array_agg(s.state order by s.id), '{}'),
        coalesce(array_agg(s.ended order by s.id), '{}')
    into ids, states, moment
    from (
        select distinct on (s.id) s.id, s.state, s.ended
        from unnest(p_ids, p_states, p_ended) s(id, state, ended) where s.id is not null order by s.id
    ) s;
    bad := array(select d.id from {schema}.done d where d.id = any(ids) and d.state <> 'd');
    select coalesce(array_agg(j.id order by j.id), '{}'), coalesce(array_agg(j.key order by j.id), '{}') into keyed, keys
    from {schema}.job j where j.id = any(bad) and j.key is not null;
    got := '{}';
    if cardinality(keyed) > 0 then
        with won as (
            insert into {schema}.job_key (key, id)
            select distinct on (k.key) k.key, k.id from unnest(keys, keyed) k(key, id) order by k.key, k.id
            on conflict do nothing
            returning id
        )
        select coalesce(array_agg(w.id), '{}') into got from won w;
    end if;
    -- Two statements: lock, then read. The second sees what changed while the first waited.
    bad := array(select d.id from {schema}.done d where d.id = any(bad) and d.state <> 'd' order by d.id for update);
    select coalesce(array_agg(d.id order by d.id), '{}'), coalesce(array_agg(d.state order by d.id), '{}') into back, was
    from unnest(ids, states, moment) s(id, state, ended)
    cross join lateral (select d.id, d.state, d.finished_at from {schema}.done d where d.id = s.id offset 0) d
    where d.id = any(bad)
      and (s.state is null or s.state = case d.state when 'f' then 'failed' else 'cancelled' end)
      and (s.ended is null or s.ended = d.finished_at)
      and (d.id = any(got) or not d.id = any(keyed))
      and exists (select from {schema}.job j where j.id = d.id offset 0);
    delete from {schema}.job_key k
    where k.key = any(keys) and k.id = any(array(select x from unnest(got) x except select x from unnest(back) x));
    delete from {schema}.done d where d.id = any(back);
    delete from {schema}.cancel_request c where c.id = any(back);
    if cardinality(back) > 0 then
        perform {schema}.forget(back);
    end if;
    insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
    select j.id, j.id + 1, j.priority, 0, j.queue, j.kind from {schema}.job j where j.id = any(back) order by j.id;
    perform {schema}.notify_workers(q.queue) from (select distinct j.queue from {schema}.job j where j.id = any(back)) q;
    return query
    select s.id,
        case when b.id is not null then 'queued'
             when j.id is null then 'unknown'
             when s.state is distinct from case d.state when 'd' then 'done' when 'f' then 'failed' when 'c' then 'cancelled' end
                 and s.state is not null or s.ended <> d.finished_at then 'changed'
             when d.state = 'd' then 'done'
             when d.id is null then 'live'
             else 'key held by job ' || coalesce((select k.id from {schema}.job_key k where k.key = j.key)::text, '?') end,
        case b.state when 'f' then 'failed' when 'c' then 'cancelled' end
    from unnest(ids, states, moment) s(id, state, ended)
    left join unnest(back, was) b(id, state) on b.id = s.id
    left join lateral (select j.id, j.key from {schema}.job j where j.id = s.id offset 0) j on true
    left join lateral (select d.id, d.state, d.finished_at from {schema}.done d where d.id = s.id offset 0) d on true
    order by 1;
end $howdah$;

-- retry: queue failed or cancelled jobs again, whatever the moment they ended.
create function {schema}.retry(p_ids bigint[]) returns table (id bigint, result text)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select id, result from {schema}.retry_seen(p_ids, null, null)
$howdah$;

-- delete_seen: delete jobs that wait or have ended, and everything that was stored about them.
-- in:  p_ids, p_states, p_ended   as in retry_seen; queued, done, failed, cancelled, or null for any
--      p_queue                    only waiting jobs of this queue; null: of any
-- out: id, result   deleted, fresh, running, changed or unknown
--      was          the state before
--
-- Leases that still name a job forget it, so a late ack passes it by, with one exception: a repeated ack of plain successes
-- does not look. So a job that has just succeeded under a lease that is still open is left for a minute (`fresh`). A row that
-- an even later ack leaves is pruned.
create function {schema}.delete_seen(p_ids bigint[], p_states text[], p_ended timestamptz[], p_queue text default null)
returns table (id bigint, result text, was text)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $howdah$
#variable_conflict use_column
declare
    ids    bigint[];
    states text[];
    moment timestamptz[];
    waited bigint[];
    locked bigint[];
    fresh  bigint[];
    ended  bigint[];
    was    "char"[];
    gone   bigint[];
begin
    select coalesce(array_agg(s.id order by s.id), '{}'), coalesce(array_agg(s.state order by s.id), '{}'),
        coalesce(array_agg(s.ended order by s.id), '{}')
    into ids, states, moment
    from (
        select distinct on (s.id) s.id, s.state, s.ended
        from unnest(p_ids, p_states, p_ended) s(id, state, ended) where s.id is not null order by s.id
    ) s;
    waited := array(
        select t.id
        from {schema}.take_waiting(
            array(select s.id from unnest(ids, states) s(id, state) where s.state is null or s.state = 'queued'), p_queue) t);
    -- Two statements: lock, then read. The second sees what changed while the first waited.
    locked := array(
        select d.id from {schema}.done d
        where d.id = any(array(
            select s.id from unnest(ids, states) s(id, state)
            where s.state is null or s.state in ('done', 'failed', 'cancelled')))
        order by d.id for update);
    select coalesce(array_agg(d.id order by d.id), '{}'), coalesce(array_agg(d.state order by d.id), '{}') into ended, was
    from unnest(ids, states, moment) s(id, state, ended)
    cross join lateral (select d.id, d.state, d.finished_at from {schema}.done d where d.id = s.id offset 0) d
    where d.id = any(locked)
      and (s.state is null or s.state = case d.state when 'd' then 'done' when 'f' then 'failed' else 'cancelled' end)
      and (s.ended is null or s.ended = d.finished_at);
    fresh := array(
        select d.id from {schema}.done d
        where d.id = any(ended) and d.state = 'd' and d.finished_at > clock_timestamp() - interval '1 minute');
    if cardinality(fresh) > 0 then
        fresh := array(
            select distinct l.id
            from {schema}.leased((select min(x) from unnest(fresh) x), (select max(x) + 1 from unnest(fresh) x)) l
            join unnest(fresh) f(id) on f.id = l.id);
        select coalesce(array_agg(e.id), '{}'), coalesce(array_agg(e.state), '{}') into ended, was
        from unnest(ended, was) e(id, state) where not e.id = any(fresh);
    end if;
    gone := waited || ended;
    delete from {schema}.done d where d.id = any(ended);
    delete from {schema}.job_key k
    where k.key = any(array(select j.key from {schema}.job j where j.id = any(gone) and j.key is not null)) and k.id = any(gone);
    delete from {schema}.cancel_request c where c.id = any(gone);
    delete from {schema}.attempt a where a.id = any(gone);
    delete from {schema}.job_log g where g.id = any(gone);
    delete from {schema}.progress p where p.id = any(gone);
    delete from {schema}.run r where r.job = any(gone);
    delete from {schema}.job j where j.id = any(gone);
    if cardinality(gone) > 0 then
        perform {schema}.forget(gone);
    end if;
    return query
    select x, 'deleted', 'queued' from unnest(waited) x
    union all
    select e.id, 'deleted', case e.state when 'd' then 'done' when 'f' then 'failed' else 'cancelled' end
    from unnest(ended, was) e(id, state)
    union all
    select s.id,
        case when s.id = any(fresh) then 'fresh'
             when not exists (select from {schema}.job j where j.id = s.id offset 0) then 'unknown'
             when s.state is not null then 'changed'
             else 'running' end,
        null
    from unnest(ids, states) s(id, state)
    where not s.id = any(gone)
    order by 1;
end $howdah$;

-- delete: delete jobs, whatever their state, unless they run.
create function {schema}.delete(p_ids bigint[]) returns table (id bigint, result text, was text)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.delete_seen(p_ids, null, null)
$howdah$;

-- ================================================================ queues

-- pause: stop claims from a queue. Returns true.
create function {schema}.pause(p_queue text, p_by text default null) returns boolean
language sql set search_path = pg_catalog, pg_temp as $howdah$
    insert into {schema}.queue as q (name, paused, paused_at, paused_by) values (p_queue, true, now(), p_by)
    on conflict (name) do update set paused = true, paused_at = now(), paused_by = excluded.paused_by
    returning true
$howdah$;

-- resume: allow claims from a queue again, and wake its workers. Returns whether it was paused.
create function {schema}.resume(p_queue text) returns boolean
language sql set search_path = pg_catalog, pg_temp as $howdah$
    with back as (
        update {schema}.queue set paused = false, paused_at = null, paused_by = null where name = p_queue and paused returning name
    ),
    notified as materialized (select {schema}.notify_workers(name) from back)
    select count(*) > 0 from notified
$howdah$;

-- ================================================================ search

-- job_at: return the id from which on jobs were enqueued at this moment or later, by binary search: ids rise with time.
--
-- A transaction that was open for long has older jobs above it, so the caller must allow a margin.
create function {schema}.job_at(moment timestamptz) returns bigint stable
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $howdah$
declare
    low    bigint := coalesce((select j.id from {schema}.job j order by j.id limit 1), 0);
    high   bigint := coalesce((select j.id + 1 from {schema}.job j order by j.id desc limit 1), 0);
    middle bigint;
    at     timestamptz;
begin
    while low < high loop
        middle := low + (high - low) / 2;
        select j.enqueued_at into at from {schema}.job j where j.id >= middle order by j.id limit 1;
        if at < moment then
            low := middle + 1;
        else
            high := middle;
        end if;
    end loop;
    return low;
end $howdah$;

-- fingerprint: return what errors have in common that differ only in numbers, quoted names and the like.
--
-- standard_conforming_strings is fixed: with off, a backslash in a literal is an escape.
create function {schema}.fingerprint(error text) returns text immutable strict parallel safe
language sql set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $howdah$
    select left(
        regexp_replace(
            regexp_replace(
                regexp_replace(
                    regexp_replace(
                        regexp_replace(left(error, 500), '\s+', ' ', 'g'),
                        '(?<!\w)''[^'']*''(?!\w)|"[^"]*"|`[^`]*`', '''…''', 'g'),
                    '\m[0-9a-fA-F]{8,8}-[0-9a-fA-F]{4,4}-[0-9a-fA-F]{4,4}-[0-9a-fA-F]{4,4}-[0-9a-fA-F]{12,12}\M', '#', 'g'),
                '\m0[xX][0-9a-fA-F]+\M|\m(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\M', '#', 'g'),
            '[0-9]+([.,:][0-9]+)*', '#', 'g'),
        200)
$howdah$;

-- ================================================================ self-repair

-- Progress of the search for misplaced jobs, and what it has found since the schema was made. One row.
create table {schema}.repair_state (
    only_row  boolean primary key default true check (only_row),
    next_id   bigint not null default 0,                                -- where the next search begins
    looked_at timestamptz,
    jobs      bigint not null default 0,                                -- jobs found in no place
    leases    bigint not null default 0,                                -- leases found with nothing left in them
    found_at  timestamptz                                               -- the last time either was found
) with (fillfactor = 50);
insert into {schema}.repair_state default values;

-- repair: search `most` jobs from an id on for those in no place: neither ready, later, leased nor done. They are queued again,
-- charged as a crash, because they may have run. Also ends leases of which nothing is left.
-- in:  first, most
-- out: next_id    where the next call continues; 0 after the last job
--      looked     jobs searched
--      requeued   jobs queued again
--      ended      jobs that failed for the last time
--      leases     leases ended
--
-- Safe on every node at once: one searches, the others return.
-- * Leases are read only if the range has jobs that neither wait nor have ended.
-- * Before a job is queued again, one statement, so one snapshot, searches every place for it: no job is seen while it moves
--   from one place to another. The probe by `hi` does not find a job whose run overlaps another run, and such a job must not
--   be queued a second time.
-- * A job that is not due yet goes to `later`, uncharged: it cannot have run.
-- * The charge counts from the last manual retry, after which a job has all its attempts again.
-- * A lease is empty when its last job ended more than a minute ago: its node may be about to report that it has finished with
--   the lease. It must also be older than a minute itself.
-- * A job that no longer exists does not keep a lease.
create function {schema}.repair(
    first bigint, most int default 10000, out next_id bigint, out looked bigint, out requeued bigint, out ended bigint,
    out leases bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    last     bigint;
    suspects bigint[];
    empty    bigint[];
    why      constant text := 'the job was in no place; this is a bug of howdah, please report it';
begin
    next_id := first; looked := 0; requeued := 0; ended := 0; leases := 0;
    perform {schema}.require_read_committed();
    if not pg_try_advisory_xact_lock(hashtextextended({'schema'} || ' repair', 0)) then
        return;
    end if;
    select max(x.id), count(*) into last, looked from (select j.id from {schema}.job j where j.id >= first order by j.id limit most) x;
    next_id := case when looked < most then 0 else last + 1 end;
    suspects := array(
        select j.id
        from {schema}.job j
        where j.id >= first and j.id <= last
          and not exists (select from {schema}.done d where d.id = j.id and d.id >= first and d.id <= last)
          and not exists (select from {schema}.later l where l.id = j.id offset 0)
          and coalesce((select r.lo from {schema}.ready r where r.hi > j.id order by r.hi limit 1) > j.id, true));
    if cardinality(suspects) > 0 then
        -- most of them are running; those that moved since the statement before are found in their new place
        suspects := array(
            select s.id from unnest(suspects) s(id)
            where not exists (select from {schema}.done d where d.id = s.id offset 0)
              and not exists (select from {schema}.later l where l.id = s.id offset 0)
              and coalesce((select r.lo from {schema}.ready r where r.hi > s.id order by r.hi limit 1) > s.id, true)
              and s.id not in (
                  select l.id
                  from {schema}.leased((select min(x) from unnest(suspects) x), (select max(x) + 1 from unnest(suspects) x)) l
                  where not exists (select from {schema}.gone g where g.token = l.token and g.id = l.id offset 0)));
    end if;
    if cardinality(suspects) > 0 then
        with suspect as materialized (
            select s.id from unnest(suspects) s(id)
        ),
        bounds as materialized (
            select min(s.id) as low, max(s.id) as high from suspect s
        ),
        placed as materialized (
            select l.id
            from bounds b
            cross join lateral {schema}.leased(b.low, b.high + 1) l
            where not exists (select from {schema}.gone g where g.token = l.token and g.id = l.id offset 0)
            union
            select i.id
            from bounds b
            cross join {schema}.ready r
            cross join lateral generate_series(greatest(r.lo, b.low), least(r.hi - 1, b.high)) i(id)
            where r.hi > b.low and r.lo <= b.high
        ),
        -- jobs that no place names, with the last known attempt
        lost as materialized (
            select j.id, j.queue, j.kind, j.priority, j.max_attempts, j.key,
                case when j.run_at > clock_timestamp() then j.run_at end as due_at,
                1 + case when a.outcome in ('retry', 'lost') and a.attempt < j.max_attempts then a.attempt else 0 end as attempt
            from (select s.id from suspect s except select p.id from placed p) s
            cross join lateral (
                select j.id, j.queue, j.kind, j.priority, j.max_attempts, j.key, j.run_at
                from {schema}.job j where j.id = s.id offset 0) j
            left join lateral (
                select a.attempt, a.outcome from {schema}.attempt a
                where a.id = s.id order by a.ended_at desc, a.attempt desc limit 1) a on true
            where not exists (select from {schema}.done d where d.id = s.id offset 0)
              and not exists (select from {schema}.later l where l.id = s.id offset 0)
        ),
        delayed as (
            insert into {schema}.later (id, due_at, priority, attempt, queue, kind)
            select x.id, x.due_at, x.priority, x.attempt - 1, x.queue, x.kind from lost x where x.due_at is not null
            returning queue
        ),
        queued as (
            insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
            select x.id, x.id + 1, x.priority, x.attempt, x.queue, x.kind
            from lost x where x.due_at is null and x.attempt < x.max_attempts order by x.id
            returning queue
        ),
        lanes as (
            insert into {schema}.lane
            select distinct x.queue, x.priority from lost x
            where not exists (select from {schema}.lane l where l.queue = x.queue and l.priority = x.priority)
        ),
        charged as materialized (
            select x.*, case when x.attempt < x.max_attempts then 'lost' else 'failed' end as outcome
            from lost x where x.due_at is null
        ),
        over as (
            insert into {schema}.done (id, attempt, state, error)
            select x.id, x.attempt, 'f', 'JobMisplaced: ' || why from charged x where x.outcome = 'failed'
            returning id
        ),
        history as (
            insert into {schema}.attempt (id, attempt, outcome, error, message)
            select x.id, x.attempt, 'lost', 'JobMisplaced', why from charged x
        ),
        totals as (
            insert into {schema}.tally as t (at, queue, kind, outcome, jobs, seconds)
            select date_trunc('minute', now()), x.queue, x.kind, x.outcome, count(*), 0
            from charged x group by x.queue, x.kind, x.outcome order by x.queue, x.kind, x.outcome
            on conflict (at, queue, kind, outcome) do update set jobs = t.jobs + excluded.jobs
        ),
        keys as (
            delete from {schema}.job_key k using charged x where x.outcome = 'failed' and k.key = x.key and k.id = x.id
        ),
        notified as materialized (select {schema}.notify_workers(queue) from (select distinct queue from queued) q)
        select (select count(*) from queued) + (select count(*) from delayed) + 0 * (select count(*) from notified),
            (select count(*) from over)
        into requeued, ended;
    end if;
    empty := array(
        select l.token from {schema}.lease l
        where l.claimed_at < clock_timestamp() - interval '1 minute'
          and not exists (
              select from unnest(l.los, l.his) run(lo, hi)
              cross join lateral generate_series(run.lo, run.hi - 1) i(id)
              where not exists (
                  select from {schema}.done d
                  where d.id = i.id and d.finished_at < clock_timestamp() - interval '1 minute' offset 0)
                and not exists (select from {schema}.gone g where g.token = l.token and g.id = i.id offset 0)
                and exists (select from {schema}.job j where j.id = i.id offset 0))
        order by l.token limit 100 for update skip locked);
    leases := cardinality(empty);
    if leases > 0 then
        perform {schema}.requeue_leased(empty, false, 'released: nothing was left of the lease');
    end if;
end $howdah$;

-- repair_next: continue the search that all nodes share, at most once in `pace` seconds, whatever the number of nodes.
-- in:  most, pace
-- out: looked   null: another node searches now or has just searched
--      requeued, ended, leases   as in repair
create function {schema}.repair_next(
    most int, pace float8, out looked bigint, out requeued bigint, out ended bigint, out leases bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    state {schema}.repair_state;
    seen  record;
begin
    requeued := 0; ended := 0; leases := 0;
    perform {schema}.require_read_committed();
    select s.* into state from {schema}.repair_state s
    where s.looked_at is null
       or s.looked_at not between clock_timestamp() - pace * interval '1 second' and clock_timestamp()
    for update skip locked;
    if not found then
        return;
    end if;
    select * into seen from {schema}.repair(state.next_id, most);
    looked := seen.looked; requeued := seen.requeued; ended := seen.ended; leases := seen.leases;
    update {schema}.repair_state s
    set next_id = seen.next_id, looked_at = clock_timestamp(), jobs = s.jobs + requeued + ended, leases = s.leases + seen.leases,
        found_at = case when requeued + ended + seen.leases > 0 then clock_timestamp() else s.found_at end;
end $howdah$;

-- ================================================================ schedules

-- Recurring jobs and their next slot. A row is locked while its job is enqueued, so a slot fires once.
create table {schema}.schedule (
    name        text primary key,
    kind        text not null,
    cron        text not null,
    zone        text not null,
    last_at     timestamptz,
    last_job    bigint,
    paused      boolean not null default false,
    declaration text,                                       -- the one in force; null: none yet
    slot_at     timestamptz,                                -- the next slot; null: no declaration was in force yet
    not_before  timestamptz,                                -- when it was resumed: earlier slots are skipped
    error       text,                                       -- why its job could not be enqueued
    failed_at   timestamptz
);

-- What nodes declare about a schedule: one row for each different declaration. A declaration is a hash of all that the
-- application specifies (expression, zone, job). Nodes refresh `seen_at` while they run. Among the declarations seen lately,
-- the one first declared last is the current one, and only its nodes fire.
create table {schema}.schedule_declaration (
    name        text not null,
    declaration text not null,
    kind        text not null,
    cron        text not null,
    zone        text not null,
    declared_at timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    withdrawn   boolean not null default false,             -- another declaration took over, because no node repeated this one;
                                                            -- it counts again when a node starts with it
    primary key (name, declaration)
) with (fillfactor = 50);

-- keep_schedule: however a schedule is resumed, skip the slots that passed while it was paused.
create function {schema}.keep_schedule() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if old.paused and not new.paused then
        new.not_before := clock_timestamp();
    end if;
    return new;
end $howdah$;
create trigger keep_schedule before update on {schema}.schedule for each row execute function {schema}.keep_schedule();

-- ================================================================ audit

create table {schema}.audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default clock_timestamp(),
    who     text not null check (length(who) between 1 and 200),
    via     text not null check (length(via) between 1 and 20),     -- cli, dashboard, api, code
    address text check (length(address) <= 200),                    -- of the client's machine
    verb    text not null check (length(verb) between 1 and 50),
    thing   text not null check (length(thing) between 1 and 50),   -- job, queue, schedule, node, consumer, table, token, log
    ids     text[] not null default '{}' check (cardinality(ids) <= 1000),
    filter  json,                                                   -- how they were selected, if not by name
    before  json,
    after   json,
    count   bigint not null,                                        -- how many things it changed
    check (pg_column_size(filter) <= 8000 and pg_column_size(before) <= 8000 and pg_column_size(after) <= 8000)
);
create index audit_ids on {schema}.audit using gin (ids);

-- guard_audit: allow only inserts, with the server's time; only prune_audit may delete.
create function {schema}.guard_audit() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if tg_op = 'INSERT' then
        new.at := clock_timestamp();
        return new;
    elsif tg_op = 'DELETE' and current_setting('howdah.prunes_audit', true) = 'on' then
        return old;
    end if;
    raise exception 'howdah: the audit is append-only; prune_audit deletes old entries' using errcode = 'restrict_violation';
end $howdah$;
create trigger guard before insert or update or delete on {schema}.audit for each row execute function {schema}.guard_audit();
create trigger guard_all before truncate on {schema}.audit for each statement execute function {schema}.guard_audit();

-- prune_audit: delete old entries.
-- in:  keep   seconds; entries younger than a week are always kept, so that a role that may only prune cannot hide what it
--             has just done
--      most   entries per call
-- out: entries deleted
create function {schema}.prune_audit(keep float8, most int default 10000) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    pruned bigint;
begin
    perform set_config('howdah.prunes_audit', 'on', true);
    delete from {schema}.audit a
    where a.id = any(array(select o.id from {schema}.audit o order by o.id limit most))
      and a.at < clock_timestamp() - greatest(keep, 604800) * interval '1 second';
    get diagnostics pruned = row_count;
    perform set_config('howdah.prunes_audit', '', true);
    return pruned;
end $howdah$;

-- ================================================================ dashboard sessions

-- Only the hash of the cookie is stored. A session that was opened with an API token ends with that token.
create table {schema}.login (
    hash       bytea primary key,
    who        text not null,
    level      text not null check (level in ('read', 'all')),
    token      int references {schema}.api_token (id) on delete cascade,
    began_at   timestamptz not null default now(),
    expires_at timestamptz not null
);
create index login_old on {schema}.login (expires_at);

-- ================================================================ webhooks

-- A notice is written in the transaction of the event it reports, by triggers on tables that plain successes never touch: code
-- that makes a job fail or a consumer halt need not know about webhooks, and successes pay nothing. The triggers run with the
-- rights of their owner, so that no other role needs rights on these tables for them.

-- Nodes declare webhooks, and repeat it while they run. The full address and the secret stay with the nodes.
create table {schema}.webhook (
    name        text primary key,
    host        text not null,                              -- for display; never the whole address
    events      text[] not null,
    queues      text[],                                     -- null: all
    kinds       text[],                                     -- null: all
    stuck_after float8 not null check (stuck_after > 0),    -- seconds
    declared_at timestamptz not null default now(),
    seen_at     timestamptz not null default now(),         -- the last time a node declared it
    declaration text                                        -- the current one
) with (fillfactor = 50);

-- What nodes declare about a webhook: one row for each different declaration. Among those seen lately, the one first declared
-- last is the current one, and `webhook` has it. Otherwise nodes of two releases would overwrite each other once a minute,
-- and failures that only the new release subscribes to would be left out for that long.
create table {schema}.webhook_declaration (
    name        text not null,
    declaration text not null,                              -- a hash of the columns that follow
    host        text not null,
    events      text[] not null,
    queues      text[],
    kinds       text[],
    stuck_after float8 not null,
    declared_at timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    primary key (name, declaration)
) with (fillfactor = 50);

-- declare_webhook: declare a webhook, or repeat the declaration.
-- in:  p_name, p_host, p_events, p_queues, p_kinds, p_stuck_after   the declaration
--      p_since   when it was first declared, as this function returned the first time; a process that was frozen for hours must
--                not count as a new release. Null: the process has just started. Nodes with a later declaration may be cut
--                off at that moment, so theirs counts for longer then
-- out: since     when it was first declared
--      current   whether it is the current declaration
create function {schema}.declare_webhook(
    p_name text, p_host text, p_events text[], p_queues text[], p_kinds text[], p_stuck_after float8, p_since timestamptz,
    out since timestamptz, out current boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    mine constant text := md5(array_to_json(array[
        p_host, p_stuck_after::text,
        (select array_agg(distinct x collate "C")::text from unnest(p_events) x),
        (select array_agg(distinct x collate "C")::text from unnest(p_queues) x),
        (select array_agg(distinct x collate "C")::text from unnest(p_kinds) x)])::text);
    best {schema}.webhook_declaration;
begin
    insert into {schema}.webhook (name, host, events, queues, kinds, stuck_after, declaration)
    values (p_name, p_host, p_events, p_queues, p_kinds, p_stuck_after, mine)
    on conflict (name) do nothing;
    perform from {schema}.webhook h where h.name = p_name for no key update;
    insert into {schema}.webhook_declaration as d (name, declaration, host, events, queues, kinds, stuck_after, declared_at)
    select p_name, mine, p_host, p_events, p_queues, p_kinds, p_stuck_after,
        coalesce(p_since, greatest(clock_timestamp(), max(o.declared_at) + interval '1 microsecond'))
    from {schema}.webhook_declaration o where o.name = p_name
    on conflict (name, declaration) do update
    set seen_at = clock_timestamp(),
        declared_at = case when d.seen_at < clock_timestamp() - interval '1 hour' then excluded.declared_at else d.declared_at end
    returning d.declared_at into since;
    select * into best from {schema}.webhook_declaration d
    where d.name = p_name
      and abs(extract(epoch from clock_timestamp() - d.seen_at)) < case when p_since is null then 600 else 150 end
    order by d.declared_at desc, d.declaration desc limit 1;
    update {schema}.webhook h
    set host = best.host, events = best.events, queues = best.queues, kinds = best.kinds, stuck_after = best.stuck_after,
        declaration = best.declaration, seen_at = clock_timestamp()
    where h.name = p_name
      and (h.declaration is distinct from best.declaration or abs(extract(epoch from clock_timestamp() - h.seen_at)) > 30);
    delete from {schema}.webhook_declaration d
    where d.name = p_name and d.seen_at < clock_timestamp() - interval '7 days';
    current := best.declaration = mine;
end $howdah$;

-- Events to deliver, one row per webhook, until they have become a job.
create table {schema}.notice (
    id      bigint generated always as identity primary key,
    webhook text not null,
    event   text not null,
    at      timestamptz not null default clock_timestamp(),
    mark    uuid not null default gen_random_uuid(),        -- the same however often it is delivered
    subject json not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index notice_webhook on {schema}.notice (webhook, id);   -- notices become jobs webhook by webhook

-- note: write a notice for every webhook that subscribes to the event.
-- in:  p_event, p_subject
--      p_queue, p_kind   of the job; null: not about a job
create function {schema}.note(p_event text, p_subject json, p_queue text default null, p_kind text default null) returns void
language sql set search_path = pg_catalog, pg_temp as $howdah$
    insert into {schema}.notice (webhook, event, subject)
    select h.name, p_event, p_subject
    from {schema}.webhook h
    where p_event = any(h.events)
      and (p_queue is null or h.queues is null or p_queue = any(h.queues))
      and (p_kind is null or h.kinds is null or p_kind = any(h.kinds))
      and h.seen_at > now() - interval '1 day'              -- no node declares it any more: notices must not pile up
$howdah$;

-- note_failed: write a notice when an attempt failed or was lost and the job has ended by that, which `done` shows at the end of
-- the statement. A webhook delivery that failed is not itself delivered.
create function {schema}.note_failed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $howdah$
begin
    if exists (select from {schema}.webhook h where 'job.failed' = any(h.events)) then
        perform {schema}.note('job.failed',
            json_build_object('id', j.id, 'kind', j.kind, 'queue', j.queue, 'attempt', new.attempt, 'max_attempts', j.max_attempts,
                'error', new.error, 'message', left(new.message, 2000)),
            j.queue, j.kind)
        from {schema}.done d join {schema}.job j on j.id = d.id
        where d.id = new.id and d.attempt = new.attempt and d.state = 'f' and not starts_with(j.kind, 'howdah:webhook:');
    end if;
    return null;
end $howdah$;
create trigger note_failed after insert on {schema}.attempt
    for each row when (new.outcome in ('failed', 'lost')) execute function {schema}.note_failed();

-- note_halted: write a notice when a partition of a consumer halts.
create function {schema}.note_halted() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $howdah$
begin
    perform {schema}.note('consumer.halted',
        json_build_object('consumer', new.consumer, 'part', new.part, 'position', new.error_position, 'failures', new.failures,
            'error', new.error, 'message', left(new.message, 2000)));
    return null;
end $howdah$;
create trigger note_halted after update of halted on {schema}.checkpoint
    for each row when (new.halted and not old.halted) execute function {schema}.note_halted();

-- ---------------------------------------------------------------- stuck queues

-- A mark per queue: everything that had arrived by `since`. While some of that waits, the mark stays; when all of it has been
-- claimed, the mark moves to now. So jobs behind the mark have waited at least since then, whatever happened to them before:
-- a job that was released, snoozed or retried for hours is not taken for one that no node starts.
create table {schema}.queue_mark (
    queue   text primary key,
    arrival bigint not null,
    since   timestamptz not null
) with (fillfactor = 50);

-- Webhooks that were notified of a stuck queue; once, until the mark has moved.
create table {schema}.queue_stuck (
    webhook text not null,
    queue   text not null,
    since   timestamptz not null,
    primary key (webhook, queue)
);

-- watch_queues: move the marks, and write notices of queues that are stuck or move again.
-- out: queues newly reported as stuck
--
-- Safe on every node at once: one looks, the others return.
create function {schema}.watch_queues() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC'
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
declare
    at      constant timestamptz := clock_timestamp();
    arrived constant bigint := coalesce(pg_sequence_last_value({'schema.arrival'}::regclass), 0);
    told    bigint;
begin
    if not exists (select from {schema}.webhook h where 'queue.stuck' = any(h.events))
        or not pg_try_advisory_xact_lock(hashtextextended({'schema'} || ' watch', 0)) then
        return 0;
    end if;
    -- waiting jobs are found by the head of each lane. The mark of a paused queue moves, unless the queue was stuck before
    insert into {schema}.queue_mark as m (queue, arrival, since)
    select q.queue, arrived, at
    from (select distinct l.queue from {schema}.lane l where l.queue <> 'howdah') q
    left join {schema}.queue_mark o on o.queue = q.queue
    where o.queue is null
       or (o.since < at - interval '5 seconds' and case
            when exists (select from {schema}.queue c where c.name = q.queue and c.paused) then
                not exists (select from {schema}.queue_stuck s where s.queue = q.queue)
            else
                not exists (select from {schema}.later t where t.queue = q.queue and t.due_at <= o.since)
                and not exists (
                    select from (select distinct l.priority from {schema}.lane l where l.queue = q.queue) p
                    cross join lateral (
                        select r.rid from {schema}.ready r where r.queue = q.queue and r.priority = p.priority order by r.rid limit 1) head
                    where head.rid <= o.arrival)
            end)
    on conflict (queue) do update set arrival = excluded.arrival, since = excluded.since;
    with moved as (
        delete from {schema}.queue_stuck s using {schema}.queue_mark m
        where m.queue = s.queue and m.since > s.since
        returning s.*
    )
    insert into {schema}.notice (webhook, event, subject)
    select h.name, 'queue.moving', json_build_object('queue', s.queue, 'since', s.since, 'seconds', extract(epoch from at - s.since)::bigint)
    from moved s join {schema}.webhook h on h.name = s.webhook
    where 'queue.moving' = any(h.events);
    with stuck as (
        insert into {schema}.queue_stuck (webhook, queue, since)
        select h.name, m.queue, m.since
        from {schema}.webhook h cross join {schema}.queue_mark m
        where 'queue.stuck' = any(h.events) and (h.queues is null or m.queue = any(h.queues))
          and h.seen_at > now() - interval '1 day'
          and m.since <= at - greatest(h.stuck_after, 10) * interval '1 second'
          and not exists (select from {schema}.queue c where c.name = m.queue and c.paused)
        on conflict do nothing
        returning webhook, queue, since
    ),
    notified as (
        insert into {schema}.notice (webhook, event, subject)
        select s.webhook, 'queue.stuck', json_build_object('queue', s.queue, 'since', s.since, 'seconds', extract(epoch from at - s.since)::bigint)
        from stuck s
        returning 1
    )
    select count(*) into told from notified;
    return told;
end $howdah$;
