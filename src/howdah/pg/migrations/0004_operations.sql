-- 0004: what people do: acts on jobs, and the record of who did what.

-- Jobs by key, also those that are over. Jobs without a key are not in it, so it costs their enqueue nothing.
create index job_keyed on {schema}.job (key, id) where key is not null;

-- ---------------------------------------------------------------- acts on jobs

-- A job that was taken out of where it waited; due_at is null if it was ready.
create type {schema}.waiting as (
    id bigint, rid bigint, due_at timestamptz, priority smallint, attempt smallint, queue text, kind text);

-- Takes those of these jobs that wait out of `ready` and `later`, in the order they were in. The caller puts them
-- elsewhere in the same transaction. The runs are locked first and read by a later statement, since a claim that
-- committed meanwhile has taken their heads; what was on the move is looked for again.
create function {schema}.take(p_ids bigint[]) returns setof {schema}.waiting
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
                cross join lateral (select y.lo, y.hi from {schema}.ready y where y.hi > i.id order by y.hi limit 1) c
                where c.lo <= i.id))
            order by r.hi for update);
        select coalesce(array_agg(i.id order by i.id), '{}'), coalesce(array_agg(c.hi order by i.id), '{}') into hits, ends
        from unnest(rest) i(id)
        cross join lateral (select y.lo, y.hi from {schema}.ready y where y.hi > i.id order by y.hi limit 1) c
        where c.lo <= i.id and c.hi = any(runs);
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

        hits := array(select l.id from {schema}.later l where l.id = any(rest) order by l.id for update);
        return query
        with out as (
            delete from {schema}.later l where l.id = any(hits) returning l.*
        )
        select o.id, null::bigint, o.due_at, o.priority, o.attempt, o.queue, o.kind from out o order by o.due_at, o.id;
        rest := array(select x from unnest(rest) x except select x from unnest(hits) x order by 1);
    end loop;
end $howdah$;

-- Gives waiting jobs another queue, another priority or both (null: as it is). They arrive anew in their new lane, in
-- the order they had; retries stay there. `was` is what they had.
create function {schema}.rearrange(p_ids bigint[], p_queue text, p_priority int, p_did text)
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
          and not exists (select from {schema}.done d where d.id = j.id));
    taken := array(select t from {schema}.take(array(select x from unnest(ids) x except select x from unnest(same) x)) t);
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
        case when not exists (select from {schema}.job j where j.id = i.id) then 'unknown'
             when exists (select from {schema}.done d where d.id = i.id) then 'over'
             when i.id = any(same) then 'same'
             else 'running' end,
        null, null
    from (select x from unnest(ids) x except select t.id from unnest(taken) t) i(id)
    order by 1;
end $howdah$;

create function {schema}.reprioritize(p_ids bigint[], p_priority int)
returns table (id bigint, said text, was_queue text, was_priority int)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.rearrange(p_ids, null, p_priority, 'reprioritized')
$howdah$;

create function {schema}.move(p_ids bigint[], p_queue text)
returns table (id bigint, said text, was_queue text, was_priority int)
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select * from {schema}.rearrange(p_ids, p_queue, null, 'moved')
$howdah$;

-- Removes jobs that wait or are over, and all that was written of them. Whatever still names one (a lease, an ack that
-- comes late) finds no job and passes it by, but for one statement: the ack of plain successes said twice does not look,
-- so a job that has just succeeded under a lease still open is left for a minute.
create function {schema}.delete(p_ids bigint[]) returns table (id bigint, said text, was text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    ids    bigint[] := array(select distinct x from unnest(p_ids) x order by x);
    waited bigint[];
    ended  bigint[];
    states "char"[];
    gone   bigint[];
    fresh  bigint[];
begin
    waited := array(select t.id from {schema}.take(ids) t);
    fresh := array(
        select d.id from unnest(ids) i(id) join {schema}.done d on d.id = i.id
        where d.state = 'd' and d.finished_at > clock_timestamp() - interval '1 minute'
          and exists (
              select from {schema}.lease l cross join lateral unnest(l.los, l.his) r(lo, hi)
              where d.id >= l.first_id and d.id < l.end_id and d.id >= r.lo and d.id < r.hi));
    with over as (
        delete from {schema}.done d
        where d.id = any(array(select x from unnest(ids) x except select x from unnest(fresh) x))
        returning d.id, d.state
    )
    select coalesce(array_agg(o.id), '{}'), coalesce(array_agg(o.state), '{}') into ended, states from over o;
    gone := waited || ended;
    delete from {schema}.job_key k using unnest(gone) i(id), {schema}.job j where j.id = i.id and k.key = j.key and k.id = j.id;
    delete from {schema}.cancel_request c where c.id = any(gone);
    delete from {schema}.attempt a where a.id = any(gone);
    delete from {schema}.job_log g where g.id = any(gone);
    delete from {schema}.progress p where p.id = any(gone);
    delete from {schema}.run r where r.job = any(gone);
    delete from {schema}.job j where j.id = any(gone);
    -- a lease that still names one no longer counts it
    insert into {schema}.gone
    select l.token, i.id
    from {schema}.lease l
    join unnest(gone) i(id) on i.id >= l.first_id and i.id < l.end_id
    where exists (select from unnest(l.los, l.his) r(lo, hi) where i.id >= r.lo and i.id < r.hi)
    on conflict do nothing;
    return query
    select x, 'deleted', 'queued' from unnest(waited) x
    union all
    select e.id, 'deleted', case e.state when 'd' then 'done' when 'f' then 'failed' else 'cancelled' end
    from unnest(ended, states) e(id, state)
    union all
    select i.id,
        case when i.id = any(fresh) then 'fresh'
             when exists (select from {schema}.job j where j.id = i.id) then 'running'
             else 'unknown' end,
        null
    from (select x from unnest(ids) x except select x from unnest(gone) x) i(id)
    order by 1;
end $howdah$;

-- ---------------------------------------------------------------- finding jobs

-- The id from which on jobs were enqueued at this moment or later, by halving: ids rise with time. A transaction that
-- was open for long has older jobs above it, so the caller leaves some room.
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

-- What errors that differ only in numbers, names in quotes and the like have in common.
create function {schema}.fingerprint(error text) returns text immutable strict parallel safe
language sql set search_path = pg_catalog, pg_temp as $howdah$
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

-- ---------------------------------------------------------------- who did what

create table {schema}.audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default clock_timestamp(),
    who     text not null check (length(who) between 1 and 200),
    via     text not null check (length(via) between 1 and 20),     -- cli, dashboard, api, code
    address text check (length(address) <= 200),                    -- of the machine it came from
    verb    text not null check (length(verb) between 1 and 50),
    thing   text not null check (length(thing) between 1 and 50),   -- job, queue, schedule, node, consumer, table, token, log
    ids     text[] not null default '{}' check (cardinality(ids) <= 1000),
    filter  json,                                                   -- how they were chosen, if not by name
    before  json,
    after   json,
    count   bigint not null,                                        -- how many things it changed
    check (pg_column_size(filter) <= 8000 and pg_column_size(before) <= 8000 and pg_column_size(after) <= 8000)
);
create index audit_ids on {schema}.audit using gin (ids);

-- Entries are added and never changed; the time is the server's. Only prune_audit says that it prunes.
create function {schema}.guard_audit() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if tg_op = 'INSERT' then
        new.at := clock_timestamp();
        return new;
    elsif tg_op = 'DELETE' and current_setting('howdah.prunes_audit', true) = 'on' then
        return old;
    end if;
    raise exception 'howdah: the audit is only added to; old entries go by retention' using errcode = 'restrict_violation';
end $howdah$;
create trigger guard before insert or update or delete on {schema}.audit for each row execute function {schema}.guard_audit();
create trigger guard_all before truncate on {schema}.audit for each statement execute function {schema}.guard_audit();

-- Deletes entries older than so many seconds, but never younger ones than a week: whoever may only prune cannot hide
-- what was just done. At most `most` a call. Returns how many.
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

-- As in 0001, but the leases of all of them are locked first, in the order in which acks lock theirs: job by job, two
-- that act on many could wait for each other.
create or replace function {schema}.retry(p_ids bigint[]) returns table (id bigint, said text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    i      bigint;
    job    {schema}.job;
    holder bigint;
    was    "char";
begin
    perform {schema}.refuse_snapshots();
    perform from {schema}.lease l
    where exists (select from unnest(p_ids) x where x >= l.first_id and x < l.end_id)
    order by l.token for update;
    for i in select distinct x from unnest(p_ids) x order by x loop
        id := i;
        select * into job from {schema}.job j where j.id = i;
        if not found then
            said := 'unknown'; return next; continue;
        end if;
        perform from {schema}.lease l where i >= l.first_id and i < l.end_id order by l.token for update;
        select d.state into was from {schema}.done d where d.id = i for update;
        if not found or was = 'd' then
            said := case when was = 'd' then 'done' else 'live' end; return next; continue;
        end if;
        if job.key is not null then
            insert into {schema}.job_key (key, id) values (job.key, i) on conflict do nothing;
            if not found then
                select k.id into holder from {schema}.job_key k where k.key = job.key;
                said := 'key held by job ' || coalesce(holder::text, '?'); return next; continue;
            end if;
        end if;
        delete from {schema}.done d where d.id = i;
        delete from {schema}.cancel_request c where c.id = i;
        insert into {schema}.gone
        select l.token, i from {schema}.lease l
        where exists (select from unnest(l.los, l.his) r(lo, hi) where i >= r.lo and i < r.hi)
        on conflict do nothing;
        insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
        values (i, i + 1, job.priority, 0, job.queue, job.kind);
        perform {schema}.ring(job.queue);
        said := 'queued';
        return next;
    end loop;
end $howdah$;
