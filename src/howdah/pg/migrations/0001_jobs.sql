-- 0001: jobs, leases, nodes.
--
-- Rows that describe a job never change; what changes is tiny and short-lived.
-- A job is in exactly one place: ready | later | lease (minus gone) | done.

create sequence {schema}.job_id;     -- rises with time, so a range of ids is a range of time and can be dropped whole
create sequence {schema}.arrival;    -- order within (queue, priority)
create sequence {schema}.token;      -- rises for ever: the fence

create table {schema}.node (
    id         int generated always as identity primary key,   -- fresh for every process start
    name       text not null,                                  -- host:pid, for people only
    state      text not null default 'idle' check (state in ('idle', 'busy', 'draining', 'offline')),
    version    text not null default '',
    queues     text[],                                         -- null: every queue
    kinds      text[],
    slots      int not null default 0,
    running    int not null default 0,
    deaf       boolean not null default false,                 -- wake-ups do not arrive, it polls
    started_at timestamptz not null default now(),
    beat_at    timestamptz not null default now(),
    stopped_at timestamptz
) with (fillfactor = 50);

create table {schema}.queue (
    name      text primary key,
    paused    boolean not null default false,
    paused_at timestamptz,
    paused_by text
);

-- Which (queue, priority) pairs exist. A claim probes `ready` once per lane, so every lane has its own
-- watermark. Not unique on purpose: a unique row inserted by a long transaction would block every other
-- enqueue to that new lane. Duplicates are harmless, the claim says distinct. Never deleted.
create table {schema}.lane (queue text not null, priority smallint not null);
create index lane_queue on {schema}.lane (queue, priority);

create table {schema}.job (
    id           bigint not null primary key,
    enqueued_at  timestamptz not null default now(),
    run_at       timestamptz,
    timeout      float4,
    priority     smallint not null default 0,
    max_attempts smallint not null default 5,
    queue        text not null,
    kind         text not null,
    key          text,
    args         json not null,
    meta         json,
    trace        text
) partition by range (id);
create table {schema}.job_default partition of {schema}.job default;

create table {schema}.done (
    id          bigint not null primary key,
    finished_at timestamptz not null default now(),
    took_us     bigint,
    node        int,
    attempt     smallint not null,
    state       "char" not null check (state in ('d', 'f', 'c')),     -- done, failed, cancelled
    result      json,
    error       text
) partition by range (id);
create table {schema}.done_default partition of {schema}.done default;
create index done_bad on {schema}.done (id) where state <> 'd';       -- failures are looked for and counted by people

-- One row is a run of jobs lo <= id < hi of one kind with the same number of attempts used. A claim takes
-- from the head: `lo` moves and is in no index, so a split is a HOT update, and "the run that holds id 7" is
-- the first hi above 7. Unique: the same job cannot be queued twice.
create table {schema}.ready (
    rid      bigint not null default nextval({'schema.arrival'}),
    lo       bigint not null,
    hi       bigint not null,
    priority smallint not null,
    attempt  smallint not null,
    queue    text not null,
    kind     text not null,
    check (lo < hi)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
create index ready_order on {schema}.ready (queue, priority, rid);
create unique index ready_hi on {schema}.ready (hi);

-- Not due yet: scheduled, waiting to retry, snoozed.
create table {schema}.later (
    id       bigint primary key,
    due_at   timestamptz not null,
    priority smallint not null,
    attempt  smallint not null,
    queue    text not null,
    kind     text not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index later_due on {schema}.later (queue, due_at);

-- One row per claim, holding many jobs. first_id and end_id let "who runs job 7" skip most leases.
create table {schema}.lease (
    token      bigint primary key default nextval({'schema.token'}),
    node       int not null,
    claimed_at timestamptz not null default now(),
    expires_at timestamptz not null,
    first_id   bigint not null,
    end_id     bigint not null,
    rids       bigint[] not null,
    los        bigint[] not null,
    his        bigint[] not null,
    attempts   smallint[] not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Jobs that left a live lease other than into done (retried, snoozed, handed back one by one); without it a
-- reset would hand them back a second time. Empty most of the time.
create table {schema}.gone (token bigint, id bigint, primary key (token, id));

create table {schema}.job_key (key text primary key, id bigint not null);                       -- one live job per key
create table {schema}.cancel_request (id bigint primary key, asked_at timestamptz not null default now());

create table {schema}.attempt (                                                             -- history for people
    id         bigint not null,
    attempt    smallint not null,
    node       int,
    outcome    text not null,
    started_at timestamptz,
    ended_at   timestamptz not null default now(),
    error      text,                                                                            -- the class
    message    text,
    traceback  text
);
create index attempt_job on {schema}.attempt (id);

-- What finished, by the minute: charts and totals without counting history.
create table {schema}.tally (
    at      timestamptz not null,
    queue   text not null,
    kind    text not null,
    outcome text not null,
    jobs    bigint not null,
    seconds float8 not null,
    primary key (at, queue, kind, outcome)
);

-- Recurring jobs: when each falls due next. A row is locked while its job is enqueued, so a slot fires once.
create table {schema}.schedule (
    name     text primary key,
    kind     text not null,
    cron     text not null,
    zone     text not null,
    next_at  timestamptz not null,
    last_at  timestamptz,
    last_job bigint,
    paused   boolean not null default false
);

-- ---------------------------------------------------------------- partitions

-- These two take strong locks, so they wait only briefly for them, and are called as one statement each: a process
-- that is frozen between two statements of a transaction would hold everybody up.

create function {schema}.grow(ahead int default 4, size bigint default 1000000) returns int
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $howdah$
declare
    head  bigint;
    top   bigint;
    made  int := 0;
    part  text;
begin
    if not pg_try_advisory_xact_lock(hashtextextended({'schema'} || ' grow', 0)) then
        return 0;                                                       -- somebody else is at it
    end if;
    select case when is_called then last_value else -1 end into head from {schema}.job_id;
    select coalesce(max(substring(c.relname from '^job_\d+_(\d+)$')::bigint), 0) into top
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = {'schema.job'}::regclass;
    -- a busy system gets larger partitions: a million ids within the hour
    if exists (select from {schema}.job j where j.id between head - size and head - size + 1000 and j.enqueued_at > now() - interval '1 hour') then
        size := size * 10;
    end if;
    -- ids that are already given out stay where they are, in the default partition
    top := greatest(top, case when top <= head then head + size / 2 else 0 end);
    while top < head + ahead * size loop
        -- LIKE and ATTACH: CREATE TABLE ... PARTITION OF locks the parent against running statements
        foreach part in array array['job', 'done'] loop
            execute format('create table %1$I.%2$s_%3$s_%4$s (like %1$I.%2$s including all, check (id >= %3$s and id < %4$s))', {'schema'}, part, top, top + size);
            execute format('alter table %1$I.%2$s attach partition %1$I.%2$s_%3$s_%4$s for values from (%3$s) to (%4$s)', {'schema'}, part, top, top + size);
        end loop;
        top := top + size;
        made := made + 1;
    end loop;
    return made;
end $howdah$;

-- Takes the oldest closed partition whose plain successes are all past their time: what must be kept longer
-- (failures, live jobs) moves to the default partition, the rest is dropped with the table. One partition a
-- call, so that the lock is short. Returns the jobs dropped, or null when there is nothing to drop.
create function {schema}.prune_partition(done_before timestamptz, failed_before timestamptz, keep_at_most int default 20000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $howdah$
declare
    part  record;
    head  bigint;
    kept  bigint[];
    total bigint;
begin
    select last_value into head from {schema}.job_id;
    for part in
        select substring(c.relname from '^job_(\d+)_')::bigint as lo, substring(c.relname from '_(\d+)$')::bigint as hi
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = {'schema.job'}::regclass and c.relname ~ '^job_\d+_\d+$'
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
            where j.id >= part.lo and j.id < part.hi and (d.id is null or (d.state <> 'd' and d.finished_at >= failed_before)));
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

-- Deletes rows past their time that no drop will reach soon: in the default partition and the one being
-- filled. At most `most` a call. Returns how many.
create function {schema}.prune_rows(done_before timestamptz, failed_before timestamptz, most int default 10000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    old bigint[];
begin
    old := array(
        select d.id from {schema}.done d
        where d.finished_at < case d.state when 'd' then done_before else failed_before end
        limit most);
    delete from {schema}.done d where d.id = any(old);
    delete from {schema}.job j where j.id = any(old);
    delete from {schema}.attempt a where a.id = any(old);
    delete from {schema}.gone g where not exists (select from {schema}.lease l where l.token = g.token);
    delete from {schema}.cancel_request c
    where c.asked_at < now() - interval '1 minute'
      and (exists (select from {schema}.done d where d.id = c.id) or not exists (select from {schema}.job j where j.id = c.id));
    delete from {schema}.tally t where t.at < least(done_before, failed_before);
    delete from {schema}.node n where n.state = 'offline' and n.beat_at < done_before
      and not exists (select from {schema}.lease l where l.node = n.id);
    return cardinality(old);
end $howdah$;

-- ---------------------------------------------------------------- the bell

-- NOTIFY only while somebody sleeps. A sign is a sequence whose value is the millisecond until which somebody
-- sleeps: no snapshot, no dead rows, seen at once, and it lapses by itself. Sixteen of them, by hash of the
-- queue; a collision only rings too often.
do $howdah$ begin
    for i in 0..15 loop
        execute format('create sequence %I.%I minvalue 0 start 0', {'schema'}, 'sign_' || i);
    end loop;
end $howdah$;

create function {schema}.channel() returns text immutable parallel safe
language sql as $howdah$ select 'howdah_' || substr(md5({'schema'}), 1, 16) $howdah$;

create function {schema}.sign_of(queue text) returns regclass stable
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    return format('%I.sign_%s', {'schema'}, hashtext(queue) & 15)::regclass;
end $howdah$;

-- Called after the insert, so that this transaction already has its id: whoever missed the sign is then among
-- the transactions the sleeper saw in flight.
create function {schema}.ring(queue text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if coalesce(pg_sequence_last_value({schema}.sign_of(queue)), 0) > (extract(epoch from clock_timestamp()) * 1000)::bigint then
        perform pg_notify({schema}.channel(), queue);
    end if;
end $howdah$;

-- Falling asleep: hang the signs, then list the transactions in flight (in that order, each statement with its
-- own snapshot), and say when the next job is due. `queues` null means all; `ms` 0 hangs nothing.
create function {schema}.doze(queues text[], ms int, out in_flight bigint[], out due_in float8, out known text[])
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    until bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint + ms;
    sign  regclass;
begin
    for sign in
        select distinct {schema}.sign_of(q) from unnest(queues) q
        union all
        select format('%I.sign_%s', {'schema'}, i)::regclass from generate_series(0, 15) i where queues is null
    loop
        if ms > 0 and coalesce(pg_sequence_last_value(sign), 0) < until - ms / 2 then
            perform setval(sign, until);
        end if;
    end loop;
    in_flight := array(select x::text::bigint from pg_snapshot_xip(pg_current_snapshot()) x);
    known := coalesce(queues, array(select distinct queue from {schema}.lane));
    select extract(epoch from min(x.due_at) - clock_timestamp()) into due_in
    from unnest(known) q(name)
    cross join lateral (select l.due_at from {schema}.later l where l.queue = q.name order by l.due_at limit 1) x
    where not exists (select from {schema}.queue c where c.name = q.name and c.paused);
end $howdah$;

-- ---------------------------------------------------------------- enqueue

-- From any language, in any transaction. A key held by a live job returns that job and fresh = false, and
-- locks nothing: an upsert would hold the key's row to the end of the caller's transaction and stall the ack.
create function {schema}.enqueue(
    kind text, args json default '{}', queue text default 'default', priority int default 0,
    run_at timestamptz default null, delay float8 default null, max_attempts int default 5,
    timeout float8 default null, key text default null, meta json default null, trace text default null,
    out id bigint, out fresh boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
#variable_conflict use_variable
begin
    if kind is null or length(kind) not between 1 and 100 or kind ~ '[[:cntrl:]]' then
        raise exception 'howdah: kind must be 1 to 100 characters, got %', coalesce(quote_literal(kind), 'null') using errcode = 'invalid_parameter_value';
    elsif queue is null or length(queue) not between 1 and 100 or queue ~ '[[:cntrl:]]' then
        raise exception 'howdah: queue must be 1 to 100 characters, got %', coalesce(quote_literal(queue), 'null') using errcode = 'invalid_parameter_value';
    elsif priority is null or priority not between -100 and 100 then
        raise exception 'howdah: priority must be from -100 to 100, got %', priority using errcode = 'invalid_parameter_value';
    elsif max_attempts is null or max_attempts not between 1 and 1000 then
        raise exception 'howdah: max_attempts must be from 1 to 1000, got %', max_attempts using errcode = 'invalid_parameter_value';
    elsif not (timeout > 0 and timeout <= 1e9) then
        raise exception 'howdah: timeout must be above zero and at most 1e9 seconds, got %', timeout using errcode = 'invalid_parameter_value';
    elsif not (delay >= 0 and delay <= 3.2e9) then
        raise exception 'howdah: delay must be from 0 to 3.2e9 seconds, got %', delay using errcode = 'invalid_parameter_value';
    elsif not isfinite(run_at) then
        raise exception 'howdah: run_at must be a moment, got %', run_at using errcode = 'invalid_parameter_value';
    elsif length(key) not between 1 and 300 or key ~ '[[:cntrl:]]' then
        raise exception 'howdah: key must be 1 to 300 characters, got %', quote_literal(left(key, 300)) using errcode = 'invalid_parameter_value';
    end if;
    fresh := true;
    if key is null then
        id := nextval({'schema.job_id'});
    else
        loop
            insert into {schema}.job_key as k (key, id) values (key, nextval({'schema.job_id'}))
            on conflict on constraint job_key_pkey do nothing returning k.id into id;
            exit when id is not null;
            select k.id into id from {schema}.job_key k where k.key = enqueue.key;     -- a new snapshot sees who won
            if id is not null then
                fresh := false;
                return;
            end if;
        end loop;
    end if;
    if delay > 0 then
        run_at := clock_timestamp() + delay * interval '1 second';
    end if;
    insert into {schema}.job (id, run_at, timeout, priority, max_attempts, queue, kind, key, args, meta, trace)
    values (id, run_at, timeout, priority, max_attempts, queue, kind, key, coalesce(args, '{}'), meta, trace);
    if run_at > clock_timestamp() then
        insert into {schema}.later (id, due_at, priority, attempt, queue, kind) values (id, run_at, priority, 0, queue, kind);
    else
        insert into {schema}.ready (lo, hi, priority, attempt, queue, kind) values (id, id + 1, priority, 0, queue, kind);
    end if;
    if not exists (select from {schema}.lane l where l.queue = enqueue.queue and l.priority = enqueue.priority) then
        insert into {schema}.lane values (queue, priority);
    end if;
    if run_at is null or run_at < clock_timestamp() + interval '3 seconds' then
        perform {schema}.ring(queue);
    end if;
end $howdah$;

-- Ids for a bulk enqueue, in as few runs as possible. The lock is taken and dropped inside the call (also right
-- behind a transaction pooler): without it two producers shred each other's runs into singles.
create function {schema}.reserve(n int) returns table (lo bigint, hi bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    ids bigint[];
    key bigint := hashtextextended({'schema'} || ' reserve', 0);
begin
    perform pg_advisory_lock(key);
    begin
        ids := array(select nextval({'schema.job_id'}) from generate_series(1, n));
    exception when others or query_canceled then
        perform pg_advisory_unlock(key);
        raise;
    end;
    perform pg_advisory_unlock(key);
    return query
        select min(v), max(v) + 1
        from (select v, v - row_number() over (order by v) as g from unnest(ids) v) x
        group by g order by 1;
end $howdah$;

-- ---------------------------------------------------------------- leases that end otherwise than by acks

-- The settings on the functions below keep their plans: a handful of ids is looked up in tables of any size, and
-- no estimate may turn that into reading a whole table.

-- The caller has locked these leases in an earlier statement. That order is the point: an ack that committed
-- before our lock is visible to this statement's snapshot. Locking and reading in one statement would hand
-- back finished jobs.
create function {schema}.hand_back(tokens bigint[], charge boolean, why text, out requeued bigint, out ended bigint)
language sql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
    with dropped as (
        delete from {schema}.lease where token = any(tokens) returning *
    ),
    open as materialized (
        select l.token, l.node, l.claimed_at, i.id, r.rid, r.attempt, j.queue, j.kind, j.priority, j.key,
            case when exists (select from {schema}.cancel_request c where c.id = i.id) then 'c'
                 when charge and r.attempt >= j.max_attempts then 'f'
                 else 'q' end as fate
        from dropped l
        cross join lateral unnest(l.rids, l.los, l.his, l.attempts) r(rid, lo, hi, attempt)
        cross join lateral generate_series(r.lo, r.hi - 1) i(id)
        join {schema}.job j on j.id = i.id
        where not exists (select from {schema}.done d where d.id = i.id)
          and not exists (select from {schema}.gone g where g.token = l.token and g.id = i.id)
    ),
    runs as (
        select min(rid) as rid, min(id) as lo, max(id) + 1 as hi, queue, kind, priority, attempt
        from (
            select *, id - row_number() over (partition by queue, kind, priority, attempt order by id) as g
            from open where fate = 'q') x
        group by queue, kind, priority, attempt, g
    ),
    queued as (
        -- released jobs keep their place; those of a dead node go to the back, a poison job must not come first again
        insert into {schema}.ready (rid, lo, hi, queue, kind, priority, attempt)
        select case when charge then nextval({'schema.arrival'}) else rid end, lo, hi, queue, kind, priority,
            case when charge then attempt else attempt - 1 end
        from runs order by rid
        returning hi - lo as n, queue
    ),
    over as (
        insert into {schema}.done (id, attempt, state, node, error)
        select id, attempt, fate::"char", node, why from open where fate <> 'q'
        returning id
    ),
    history as (
        insert into {schema}.attempt (id, attempt, node, outcome, started_at, error, message)
        select id, attempt, node, 'lost', claimed_at, 'LeaseExpired', why from open where charge
    ),
    totals as (
        insert into {schema}.tally as t (at, queue, kind, outcome, jobs, seconds)
        select date_trunc('minute', now()), queue, kind, case fate when 'f' then 'failed' when 'c' then 'cancelled' else 'lost' end, count(*), 0
        from open where charge or fate <> 'q'
        group by queue, kind, fate order by queue, kind, fate
        on conflict (at, queue, kind, outcome) do update set jobs = t.jobs + excluded.jobs
    ),
    keys as (delete from {schema}.job_key k using open o where o.fate <> 'q' and k.key = o.key and k.id = o.id),
    wishes as (delete from {schema}.cancel_request c using open o where o.fate = 'c' and c.id = o.id),
    forget as (delete from {schema}.gone where token = any(tokens)),
    bell as materialized (select {schema}.ring(queue) from (select distinct queue from queued) q)
    select coalesce((select sum(n) from queued), 0)::bigint, (select count(*) from over) + 0 * (select count(*) from bell)
$howdah$;

create function {schema}.refuse_snapshots() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'howdah: this call needs READ COMMITTED, the transaction is %', current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state';
    end if;
end $howdah$;

create function {schema}.reset(most int default 100, out leases int, out requeued bigint, out ended bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    taken bigint[];
begin
    perform {schema}.refuse_snapshots();
    taken := array(select token from {schema}.lease where expires_at < clock_timestamp() order by token limit most for update skip locked);
    leases := cardinality(taken);
    requeued := 0;
    ended := 0;
    if leases > 0 then
        select b.requeued, b.ended into requeued, ended
        from {schema}.hand_back(taken, true, 'lease expired: the node stopped renewing it') b;
    end if;
    update {schema}.node n set state = 'offline', running = 0, stopped_at = coalesce(n.stopped_at, n.beat_at)
    where n.state <> 'offline' and n.beat_at < clock_timestamp() - interval '90 seconds';
end $howdah$;

create function {schema}.release(p_node int, tokens bigint[], out leases int, out requeued bigint, out ended bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    taken bigint[];
begin
    perform {schema}.refuse_snapshots();
    taken := array(select token from {schema}.lease where token = any(tokens) and node = p_node order by token for update);
    leases := cardinality(taken);
    requeued := 0;
    ended := 0;
    if leases > 0 then
        select b.requeued, b.ended into requeued, ended from {schema}.hand_back(taken, false, 'handed back') b;
    end if;
end $howdah$;

-- ---------------------------------------------------------------- ack

-- Any outcome: d done, f failed, c cancelled, r retry after delay (attempt charged), s snooze after delay (not
-- charged), b back to the queue now (not charged). Two statements: lock, then look. A replay changes nothing.
-- Answers (token, id), not ids: one process may hold the same job under a lost and a fresh lease at once.
create function {schema}.ack(
    p_node int, tokens bigint[], ids bigint[], attempts smallint[], outcomes "char"[], delays float8[], tooks bigint[],
    results json[], errors text[], messages text[], tracebacks text[], finished bigint[])
returns table (token bigint, id bigint, fate text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    held bigint[];
begin
    perform {schema}.refuse_snapshots();
    held := array(
        select l.token from {schema}.lease l
        where (l.token = any(tokens) or l.token = any(finished)) and l.node = p_node
        order by l.token for update);
    return query
    with a as materialized (
        select a.*, j.queue, j.kind, j.priority, j.key,
            case when a.outcome in ('r', 's', 'b') and exists (select from {schema}.cancel_request c where c.id = a.id) then 'c'
                 when a.outcome = 'r' and a.attempt >= j.max_attempts then 'f'
                 else a.outcome end as fate
        from unnest(tokens, ids, attempts, outcomes, delays, tooks, results, errors, messages, tracebacks)
            a(token, id, attempt, outcome, delay, took, result, error, message, traceback)
        join {schema}.job j on j.id = a.id
        where a.token = any(held)
          and not exists (select from {schema}.done d where d.id = a.id)
          and not exists (select from {schema}.gone g where g.token = a.token and g.id = a.id)
    ),
    over as (
        insert into {schema}.done (id, attempt, state, node, took_us, result, error)
        select a.id, a.attempt, a.fate::"char", p_node, a.took, a.result, nullif(concat_ws(': ', a.error, a.message), '')
        from a where a.fate in ('d', 'f', 'c')
    ),
    later as (
        insert into {schema}.later (id, due_at, priority, attempt, queue, kind)
        select a.id, clock_timestamp() + a.delay * interval '1 second', a.priority,
            case when a.fate = 'r' then a.attempt else a.attempt - 1 end, a.queue, a.kind
        from a where a.fate in ('r', 's')
    ),
    back as (
        insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
        select a.id, a.id + 1, a.priority, a.attempt - 1, a.queue, a.kind from a where a.fate = 'b'
        returning queue
    ),
    history as (
        insert into {schema}.attempt (id, attempt, node, outcome, started_at, error, message, traceback)
        select a.id, a.attempt, p_node, case a.fate when 'r' then 'retry' when 'c' then 'cancelled' else 'failed' end,
            clock_timestamp() - a.took * interval '1 microsecond', a.error, a.message, a.traceback
        from a where a.outcome in ('r', 'f') or (a.fate = 'c' and a.error is not null)
    ),
    forget as (
        insert into {schema}.gone select a.token, a.id from a where a.fate in ('r', 's', 'b') and not a.token = any(finished)
    ),
    keys as (delete from {schema}.job_key k using a where a.fate in ('d', 'f', 'c') and k.key = a.key and k.id = a.id),
    wishes as (delete from {schema}.cancel_request c using a where a.fate in ('d', 'f', 'c') and c.id = a.id),
    -- by token, never by ctid: a heartbeat that commits while we wait for the lock moves the row
    leases as (delete from {schema}.lease l where l.token = any(finished) and l.token = any(held)),
    forgotten as (delete from {schema}.gone g where g.token = any(finished) and g.token = any(held)),
    bell as materialized (select {schema}.ring(queue) from (select distinct queue from back) q)
    select a.token, a.id, a.fate::text from a where (select count(*) from bell) >= 0
    union all                                              -- a replay: what this node already recorded of this attempt
    select x.token, x.id, d.state::text
    from unnest(tokens, ids, attempts) x(token, id, attempt)
    join {schema}.done d on d.id = x.id and d.node = p_node and d.attempt = x.attempt;
end $howdah$;

-- One success inside the handler's own transaction, as its last statement. KEY SHARE: many handlers of one lease
-- commit side by side and the heartbeat is not held up, yet a reset, which deletes, must wait or skip. A lost
-- lease raises, so everything the handler wrote rolls back.
create function {schema}.ack_in_transaction(p_node int, p_token bigint, p_id bigint, p_attempt int, p_took bigint, p_result json default null)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    perform from {schema}.lease l
    where l.token = p_token and l.node = p_node
    for key share;
    if not found or exists (select from {schema}.gone g where g.token = p_token and g.id = p_id) then
        raise exception 'howdah: the lease of job % is lost', p_id using errcode = 'HW001';
    end if;
    insert into {schema}.done (id, attempt, state, node, took_us, result) values (p_id, p_attempt, 'd', p_node, p_took, p_result);
    delete from {schema}.job_key k using {schema}.job j where j.id = p_id and k.key = j.key and k.id = p_id;
end $howdah$;

-- ---------------------------------------------------------------- what people do

-- The wish is written first, then carried out if the job is waiting. If it is running (or on the move) the wish
-- stays: the heartbeat tells its node, and retry, release and reset turn it into `cancelled`.
create function {schema}.cancel(p_ids bigint[]) returns table (id bigint, said text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    i       bigint;
    run     record;
    used    smallint;
    waiting boolean;
begin
    perform {schema}.refuse_snapshots();
    for i in select distinct x from unnest(p_ids) x order by x loop
        id := i;
        if not exists (select from {schema}.job j where j.id = i) then
            said := 'unknown'; return next; continue;
        elsif exists (select from {schema}.done d where d.id = i) then
            said := 'over'; return next; continue;
        end if;
        insert into {schema}.cancel_request (id) values (i) on conflict do nothing;
        waiting := false;
        for try in 1..3 loop
            select r.ctid as at, r.* into run from {schema}.ready r where r.hi > i order by r.hi limit 1 for update;
            if found and run.lo <= i then
                -- the head stays, the tail is a new row; both keep the run's place
                if run.hi > i + 1 and run.lo < i then
                    insert into {schema}.ready (rid, lo, hi, priority, attempt, queue, kind)
                    values (run.rid, run.lo, i, run.priority, run.attempt, run.queue, run.kind);
                    update {schema}.ready r set lo = i + 1 where r.ctid = run.at;
                elsif run.hi > i + 1 then
                    update {schema}.ready r set lo = i + 1 where r.ctid = run.at;
                elsif run.lo < i then
                    update {schema}.ready r set hi = i where r.ctid = run.at;
                else
                    delete from {schema}.ready r where r.ctid = run.at;
                end if;
                waiting := found;
                used := run.attempt;
            else
                delete from {schema}.later l where l.id = i returning l.attempt into used;
                waiting := found;
            end if;
            exit when waiting;
        end loop;
        if waiting then
            insert into {schema}.done (id, attempt, state, error) values (i, used, 'c', 'cancelled while waiting');
            delete from {schema}.job_key k using {schema}.job j where j.id = i and k.key = j.key and k.id = i;
            delete from {schema}.cancel_request c where c.id = i;
        end if;
        said := case when waiting then 'cancelled' else 'asked' end;
        return next;
    end loop;
end $howdah$;

-- A failed or cancelled job starts anew with no attempt used. Live leases that still name it must forget it.
create function {schema}.retry(p_ids bigint[]) returns table (id bigint, said text)
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

create function {schema}.pause(p_queue text, p_by text default null) returns boolean
language sql set search_path = pg_catalog, pg_temp as $howdah$
    insert into {schema}.queue as q (name, paused, paused_at, paused_by) values (p_queue, true, now(), p_by)
    on conflict (name) do update set paused = true, paused_at = now(), paused_by = excluded.paused_by
    returning true
$howdah$;

create function {schema}.resume(p_queue text) returns boolean
language sql set search_path = pg_catalog, pg_temp as $howdah$
    with back as (
        update {schema}.queue set paused = false, paused_at = null, paused_by = null where name = p_queue and paused returning name
    ),
    bell as materialized (select {schema}.ring(name) from back)
    select count(*) > 0 from bell
$howdah$;

-- ---------------------------------------------------------------- every job and its state, in plain SQL

-- Each lateral is gated by those before it: a finished job costs two index probes, only a running one looks at leases.
create view {schema}.jobs as
select j.id, j.kind, j.queue,
    case when d.id is not null then case d.state when 'd' then 'done' when 'f' then 'failed' else 'cancelled' end
         when l.id is not null or r.hi is not null then 'queued'
         when h.token is not null then 'running' end as state,
    j.priority, coalesce(d.attempt, l.attempt, r.attempt, h.attempt) as attempt, j.max_attempts,
    (select count(*) from {schema}.attempt a where a.id = j.id and a.outcome = 'lost') as resets,
    j.key, j.args, j.meta, j.trace, j.timeout, j.enqueued_at,
    coalesce(l.due_at, j.run_at, j.enqueued_at) as run_at,
    coalesce(d.finished_at - d.took_us * interval '1 microsecond', h.claimed_at) as started_at,
    d.finished_at, coalesce(d.node, h.node) as node, h.token, h.expires_at, d.result,
    coalesce(d.error, (select concat_ws(': ', a.error, a.message) from {schema}.attempt a where a.id = j.id and d.id is null order by a.ended_at desc limit 1)) as error,
    exists (select from {schema}.cancel_request c where c.id = j.id) as cancel_asked
from {schema}.job j
left join {schema}.done d on d.id = j.id
left join {schema}.later l on l.id = j.id
left join lateral (
    select * from (select y.lo, y.hi, y.attempt from {schema}.ready y where y.hi > j.id order by y.hi limit 1) z
    where z.lo <= j.id and d.id is null and l.id is null) r on true
left join lateral (
    select e.token, e.node, e.claimed_at, e.expires_at, u.attempt
    from {schema}.lease e cross join lateral unnest(e.los, e.his, e.attempts) u(lo, hi, attempt)
    where d.id is null and l.id is null and r.hi is null
      and j.id >= e.first_id and j.id < e.end_id and j.id >= u.lo and j.id < u.hi
      and not exists (select from {schema}.gone g where g.token = e.token and g.id = j.id)
    limit 1) h on true;

select {schema}.grow();
