-- 0018: acts on jobs carry the state that was seen, and hold no lease.
--
-- Every act takes, beside the ids, what the caller saw of each job: its state, and for a job that has ended the moment it
-- ended. A job that is no longer so is left alone and answered with `changed`. Null: whatever its state. The functions of
-- the release before keep their names and their behaviour.

-- The ids from `low` up to, but not including, `high` that a lease names, also those that have ended since. Linear in the
-- number of leased jobs, whatever the number of ids asked for.
create function {schema}.leased(low bigint, high bigint) returns table (token bigint, id bigint) stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select l.token, i.id
    from {schema}.lease l
    cross join lateral unnest(l.los, l.his) r(lo, hi)
    cross join lateral generate_series(greatest(r.lo, low), least(r.hi, high) - 1) i(id)
    where l.first_id < high and l.end_id > low
$howdah$;

-- Lets every lease that still names one of these jobs forget it: neither a late ack nor a reset counts it any more. The
-- caller holds or has deleted the job's row in `done`, or has taken it out of where it waited, so no new lease can name it.
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

-- ---------------------------------------------------------------- jobs that wait

-- As `take` in 0004, and only jobs that wait in this queue (null: in any).
create function {schema}.take_from(p_ids bigint[], p_queue text) returns setof {schema}.waiting
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = on as $howdah$
#variable_conflict use_column
declare
    rest bigint[] := array(select distinct x from unnest(p_ids) x order by x);
    runs bigint[];
    hits bigint[];
    ends bigint[];
begin
    perform {schema}.refuse_snapshots();
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
        -- what is left of the runs keeps its place
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

create or replace function {schema}.take(p_ids bigint[]) returns setof {schema}.waiting
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.take_from(p_ids, null)
$howdah$;

-- As `rearrange` in 0004, and only jobs that wait in p_from (null: in any queue).
create function {schema}.rearrange_from(p_ids bigint[], p_from text, p_queue text, p_priority int, p_did text)
returns table (id bigint, said text, was_queue text, was_priority int)
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
    -- those that are there already keep their place
    same := array(
        select j.id from unnest(ids) i(id) join {schema}.job j on j.id = i.id
        where j.queue = coalesce(p_queue, j.queue) and j.priority = coalesce(p_priority, j.priority)
          and j.queue = coalesce(p_from, j.queue)
          and not exists (select from {schema}.done d where d.id = j.id));
    taken := array(
        select t from {schema}.take_from(array(select x from unnest(ids) x except select x from unnest(same) x), p_from) t);
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
    perform {schema}.ring(q.queue) from (select distinct coalesce(p_queue, t.queue) as queue from unnest(taken) t) q;
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

create or replace function {schema}.rearrange(p_ids bigint[], p_queue text, p_priority int, p_did text)
returns table (id bigint, said text, was_queue text, was_priority int)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.rearrange_from(p_ids, null, p_queue, p_priority, p_did)
$howdah$;

-- ---------------------------------------------------------------- cancel

-- Cancels jobs: waiting ones end at once; of those that run (or are on the move) the wish stays: the heartbeat tells their
-- node, and retry, release and reset turn it into `cancelled`. A job that was seen waiting is not asked to end while it
-- runs, and one that was seen running is not ended where it waits: both are answered with `changed`.
create function {schema}.cancel_seen(p_ids bigint[], p_states text[], p_queue text default null)
returns table (id bigint, said text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    ids    bigint[];
    states text[];
    open   bigint[];
    wished bigint[];
    ended  bigint[];
    used   smallint[];
begin
    perform {schema}.refuse_snapshots();
    select coalesce(array_agg(s.id order by s.id), '{}'), coalesce(array_agg(s.state order by s.id), '{}') into ids, states
    from (select distinct on (s.id) s.id, s.state from unnest(p_ids, p_states) s(id, state) where s.id is not null order by s.id) s;
    open := array(
        select s.id from unnest(ids) s(id)
        where exists (select from {schema}.job j where j.id = s.id offset 0)
          and not exists (select from {schema}.done d where d.id = s.id offset 0)
        order by 1);
    -- The wish is written first: a job on its way back to the queue is then met by one side or the other.
    wished := array(
        select s.id from unnest(ids, states) s(id, state)
        where s.id = any(open)
          and (s.state is null
            or s.state = 'running'
              and not exists (select from {schema}.later l where l.id = s.id offset 0)
              and coalesce((select r.lo from {schema}.ready r where r.hi > s.id order by r.hi limit 1) > s.id, true))
        order by 1);
    insert into {schema}.cancel_request (id) select x from unnest(wished) x order by x on conflict do nothing;
    select coalesce(array_agg(t.id), '{}'), coalesce(array_agg(t.attempt), '{}') into ended, used
    from {schema}.take_from(
        array(select s.id from unnest(ids, states) s(id, state) where s.id = any(open) and (s.state is null or s.state = 'queued')),
        p_queue) t;
    insert into {schema}.done (id, attempt, state, error)
    select e.id, e.attempt, 'c', 'cancelled while waiting' from unnest(ended, used) e(id, attempt);
    delete from {schema}.job_key k
    where k.key = any(array(select j.key from {schema}.job j where j.id = any(ended) and j.key is not null)) and k.id = any(ended);
    -- a job that was deleted while we waited needs no wish
    wished := array(select x from unnest(wished) x where exists (select from {schema}.job j where j.id = x offset 0) order by 1);
    delete from {schema}.cancel_request c
    where c.id = any(open)
      and (c.id = any(ended) or not exists (select from {schema}.job j where j.id = c.id offset 0));
    return query
    select s.id,
        case when s.id = any(ended) then 'cancelled'
             when s.id = any(wished) then 'asked'
             when not exists (select from {schema}.job j where j.id = s.id offset 0) then 'unknown'
             when s.state is null then 'over'
             else 'changed' end
    from unnest(ids, states) s(id, state)
    order by 1;
end $howdah$;

create or replace function {schema}.cancel(p_ids bigint[]) returns table (id bigint, said text)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.cancel_seen(p_ids, null)
$howdah$;

-- ---------------------------------------------------------------- retry

-- Starts failed or cancelled jobs anew, with no attempt used. `was` is the state they ended in.
--
-- It locks no lease: a transaction of the caller's that stays open would hold up the heartbeat, and with it every job of
-- the node. What a lock on the lease kept apart is kept apart so: an ack that came before is visible as the row in `done`
-- that is locked here; one that comes later sees `gone` and no row in `done`, or neither of the two changes, since both
-- are one commit; ack_in_transaction and ack_keyless, which wait for this commit where they insert into `done`, look at
-- `gone` once more behind it.
--
-- Keys come first: a key that an open transaction holds is waited for with nothing else in hand.
create function {schema}.retry_seen(p_ids bigint[], p_states text[], p_ended timestamptz[])
returns table (id bigint, said text, was text)
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
    perform {schema}.refuse_snapshots();
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
    -- Two statements: lock, then look. What changed while we waited is seen by the second.
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
    perform {schema}.ring(q.queue) from (select distinct j.queue from {schema}.job j where j.id = any(back)) q;
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

create or replace function {schema}.retry(p_ids bigint[]) returns table (id bigint, said text)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select id, said from {schema}.retry_seen(p_ids, null, null)
$howdah$;

-- ---------------------------------------------------------------- delete

-- Removes jobs that wait or are over, and all that was written of them. Leases that still name one forget it, so a late
-- ack passes it by, but for one statement: the ack of plain successes said twice does not look, so a job that has just
-- succeeded under a lease still open is left for a minute (`fresh`). The row an ack leaves even later is pruned.
create function {schema}.delete_seen(p_ids bigint[], p_states text[], p_ended timestamptz[], p_queue text default null)
returns table (id bigint, said text, was text)
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
        from {schema}.take_from(
            array(select s.id from unnest(ids, states) s(id, state) where s.state is null or s.state = 'queued'), p_queue) t);
    -- Two statements: lock, then look. What changed while we waited is seen by the second.
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

create or replace function {schema}.delete(p_ids bigint[]) returns table (id bigint, said text, was text)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.delete_seen(p_ids, null, null)
$howdah$;

-- ---------------------------------------------------------------- prune

-- Whether prune_partition works with the rights of its owner, which deploy/roles.sql decides and a replacement forgets.
select set_config('howdah.was_definer', (
    select p.prosecdef::text from pg_proc p
    where p.oid = {'schema.prune_partition'}::regproc), true);

-- As in 0001, but what it found before it waited for its lock is looked at again behind it: a job that succeeded meanwhile
-- is kept for its time. Jobs that a lease still names are kept as well: an ack of theirs said once more must find their
-- outcome.
create or replace function {schema}.prune_partition(done_before timestamptz, failed_before timestamptz, keep_at_most int default 20000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $howdah$
declare
    part  record;
    head  bigint;
    kept  bigint[];
    total bigint;
begin
    select last_value into head from {schema}.job_id;
    for part in
        select substring(c.relname from '^job_([0-9]+)_')::bigint as lo, substring(c.relname from '_([0-9]+)$')::bigint as hi
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = {'schema.job'}::regclass and c.relname ~ '^job_[0-9]+_[0-9]+$'
        order by 1
    loop
        exit when part.hi > head;                                       -- ids still being given out
        continue when exists (select from {schema}.done d where d.id >= part.lo and d.id < part.hi and d.state = 'd' and d.finished_at >= done_before);
        -- an id given out to a transaction still open would have nowhere to go but the default partition: harmless
        kept := array(
            select j.id from {schema}.job j left join {schema}.done d on d.id = j.id
            where j.id >= part.lo and j.id < part.hi and (d.id is null or (d.state <> 'd' and d.finished_at >= failed_before))
            limit keep_at_most + 1);
        continue when cardinality(kept) > keep_at_most;
        execute format('lock table %1$I.job, %1$I.done in access exclusive mode', {'schema'});
        kept := array(
            select j.id from {schema}.job j left join {schema}.done d on d.id = j.id
            where j.id >= part.lo and j.id < part.hi
              and (d.id is null
                or d.finished_at >= case d.state when 'd' then done_before else failed_before end
                or j.id in (select l.id from {schema}.leased(part.lo, part.hi) l)));
        execute format('alter table %1$I.job detach partition %1$I.job_%2$s_%3$s', {'schema'}, part.lo, part.hi);
        execute format('alter table %1$I.done detach partition %1$I.done_%2$s_%3$s', {'schema'}, part.lo, part.hi);
        execute format('select count(*) from %1$I.job_%2$s_%3$s', {'schema'}, part.lo, part.hi) into total;
        execute format('insert into %1$I.job select * from %1$I.job_%2$s_%3$s where id = any($1)', {'schema'}, part.lo, part.hi) using kept;
        execute format('insert into %1$I.done select * from %1$I.done_%2$s_%3$s where id = any($1)', {'schema'}, part.lo, part.hi) using kept;
        execute format('drop table %1$I.job_%2$s_%3$s, %1$I.done_%2$s_%3$s', {'schema'}, part.lo, part.hi);
        delete from {schema}.attempt a where a.id >= part.lo and a.id < part.hi and not a.id = any(kept);
        return total - cardinality(kept);
    end loop;
    return null;
end $howdah$;

do $howdah$ begin
    if current_setting('howdah.was_definer') = 'true' then
        alter function {schema}.prune_partition(timestamptz, timestamptz, int) security definer;
    end if;
end $howdah$;

-- As in 0010, but jobs that a lease still names are left for the next time: an ack of theirs said once more, or a
-- transaction that commits late, must find their outcome, or it writes one of a job that is no more. Rows in `done` without
-- their job, which such an ack left behind, go as well: of the newest `most`; older ones go with their time.
create or replace function {schema}.prune_rows(done_before timestamptz, failed_before timestamptz, most int default 10000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    old bigint[];
begin
    old := array(
        select d.id from {schema}.done d
        where d.finished_at < case d.state when 'd' then done_before else failed_before end
          and d.id not in (select l.id from {schema}.leased(0, 9223372036854775807) l)
        limit most
        for update of d skip locked);
    delete from {schema}.done d where d.id = any(old);
    delete from {schema}.job j where j.id = any(old);
    delete from {schema}.attempt a where a.id = any(old);
    delete from {schema}.done d
    where d.id = any(array(
        select n.id from (select x.id from {schema}.done x order by x.id desc limit most) n
        where not exists (select from {schema}.job j where j.id = n.id offset 0)));
    delete from {schema}.gone g where not exists (select from {schema}.lease l where l.token = g.token);
    delete from {schema}.cancel_request c
    where c.asked_at < now() - interval '1 minute'
      and (exists (select from {schema}.done d where d.id = c.id) or not exists (select from {schema}.job j where j.id = c.id));
    delete from {schema}.tally t where t.at < least(done_before, failed_before);
    delete from {schema}.node n where n.state = 'offline' and n.beat_at < done_before
      and not exists (select from {schema}.lease l where l.node = n.id);
    return cardinality(old);
end $howdah$;

-- ---------------------------------------------------------------- acks in the handler's transaction

-- As in 0001 and 0011, and both look at `gone` a second time, behind the insert: it waits for a retry or a delete of this
-- job that is not committed yet, and then goes through, since that has removed the row in `done`.
create or replace function {schema}.ack_in_transaction(p_node int, p_token bigint, p_id bigint, p_attempt int, p_took bigint, p_result json default null)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    perform from {schema}.lease l
    where l.token = p_token and l.node = p_node
    for key share;
    if not found or exists (select from {schema}.gone g where g.token = p_token and g.id = p_id) then
        raise exception 'howdah: the lease of job % is lost', p_id using errcode = 'HW001';
    end if;
    insert into {schema}.done (id, attempt, state, node, took_us, result) values (p_id, p_attempt, 'd', p_node, p_took, p_result);
    if exists (select from {schema}.gone g where g.token = p_token and g.id = p_id) then
        raise exception 'howdah: the lease of job % is lost', p_id using errcode = 'HW001';
    end if;
    delete from {schema}.job_key k using {schema}.job j where j.id = p_id and k.key = j.key and k.id = p_id;
end $howdah$;

create or replace function {schema}.ack_keyless(p_node int, p_token bigint, p_id bigint, p_attempt int, p_took bigint, p_result json default null)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    perform from {schema}.lease l
    where l.token = p_token and l.node = p_node
    for key share;
    if not found or exists (select from {schema}.gone g where g.token = p_token and g.id = p_id) then
        raise exception 'howdah: the lease of job % is lost', p_id using errcode = 'HW001';
    end if;
    insert into {schema}.done (id, attempt, state, node, took_us, result) values (p_id, p_attempt, 'd', p_node, p_took, p_result);
    if exists (select from {schema}.gone g where g.token = p_token and g.id = p_id) then
        raise exception 'howdah: the lease of job % is lost', p_id using errcode = 'HW001';
    end if;
end $howdah$;
