-- 0005: notices: what somebody outside wants to hear of.
--
-- A notice is written in the transaction of what it tells of, by triggers on tables that plain successes never touch: what
-- makes a job fail, or a consumer halt, need not know of webhooks, and what does neither pays nothing. The triggers work with
-- the rights of their owner, so that roles granted before this migration go on as before.

-- Who wants to hear what. Nodes declare it, again and again; where a message goes, and with which secret, is theirs alone.
create table {schema}.webhook (
    name        text primary key,
    host        text not null,                              -- where it goes, for people; never the whole address
    events      text[] not null,
    queues      text[],                                     -- null: all
    kinds       text[],                                     -- null: all
    stuck_after float8 not null check (stuck_after > 0),    -- seconds
    declared_at timestamptz not null default now(),
    seen_at     timestamptz not null default now()          -- a node that knows it was last there
) with (fillfactor = 50);

-- What happened, once for everybody who wants to hear of it, until it has become a job.
create table {schema}.notice (
    id      bigint generated always as identity primary key,
    webhook text not null,
    event   text not null,
    at      timestamptz not null default clock_timestamp(),
    mark    uuid not null default gen_random_uuid(),        -- the same however often it is delivered
    subject json not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create function {schema}.note(p_event text, p_subject json, p_queue text default null, p_kind text default null) returns void
language sql set search_path = pg_catalog, pg_temp as $howdah$
    insert into {schema}.notice (webhook, event, subject)
    select h.name, p_event, p_subject
    from {schema}.webhook h
    where p_event = any(h.events)
      and (p_queue is null or h.queues is null or p_queue = any(h.queues))
      and (p_kind is null or h.kinds is null or p_kind = any(h.kinds))
      and h.seen_at > now() - interval '1 day'              -- nobody knows it any more: nothing piles up
$howdah$;

-- An attempt that failed or was lost, of a job that is over by that: at the end of the statement `done` says so. A message
-- that cannot be delivered is no news to deliver.
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

-- ---------------------------------------------------------------- queues that are stuck

-- A mark in each queue: all that had arrived by `since`. While something of that waits, the mark stays; when all of it was
-- taken, it moves up to now. So what is behind a mark has waited at least since then, whatever became of it before: a job
-- that was handed back, snoozed or retried for hours is not taken for one that nobody starts.
create table {schema}.queue_mark (
    queue   text primary key,
    arrival bigint not null,
    since   timestamptz not null
) with (fillfactor = 50);

-- Who was told of which queue; once, until the mark has moved.
create table {schema}.queue_stuck (
    webhook text not null,
    queue   text not null,
    since   timestamptz not null,
    primary key (webhook, queue)
);

-- Safe on every node at once: one looks, the others come back later. Returns the queues told of.
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
    -- what waits is found by the head of each lane. A paused queue need not move: its mark does, unless it was stuck before
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
    said as (
        insert into {schema}.notice (webhook, event, subject)
        select s.webhook, 'queue.stuck', json_build_object('queue', s.queue, 'since', s.since, 'seconds', extract(epoch from at - s.since)::bigint)
        from stuck s
        returning 1
    )
    select count(*) into told from said;
    return told;
end $howdah$;
