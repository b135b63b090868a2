-- 0016: schedules know their declaration, keys of a bulk are taken in one call, moments fit into Python.

-- ---------------------------------------------------------------- schedules

-- Which nodes declare a schedule, and how: one row for each different declaration. A declaration is a hash of everything
-- the application says about the schedule (expression, zone, job). Nodes refresh `seen_at` as long as they run. Of the
-- declarations seen lately the one first declared last is the current one, and only its nodes fire.
create table {schema}.schedule_declaration (
    name        text not null,
    declaration text not null,
    kind        text not null,
    cron        text not null,
    zone        text not null,
    declared_at timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    primary key (name, declaration)
) with (fillfactor = 50);

-- The slot to come is in `slot_at`. Nodes of the release before fire by `next_at` and by the name alone, so from the moment
-- a newer node declares a schedule its `next_at` is infinity and they never find it due.
alter table {schema}.schedule
    add column declaration text,                            -- null: still fired by nodes of the release before
    add column slot_at     timestamptz,
    add column not_before  timestamptz,                     -- it was resumed then: slots before it are left out
    add column error       text,                            -- why its job could not be enqueued
    add column failed_at   timestamptz,
    add column writes      bigint not null default 0;       -- raised by statements that know declarations

-- A statement of the release before does not raise `writes`, so what it says about a declared schedule is not taken over.
-- However a schedule is resumed, slots that passed meanwhile are left out.
create function {schema}.keep_schedule() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if old.declaration is not null and new.writes = old.writes then
        new.kind := old.kind;
        new.cron := old.cron;
        new.zone := old.zone;
        new.next_at := old.next_at;
        new.last_at := old.last_at;
        new.last_job := old.last_job;
    end if;
    if old.paused and not new.paused then
        new.not_before := clock_timestamp();
    end if;
    return new;
end $howdah$;

create trigger keep_schedule before update on {schema}.schedule for each row execute function {schema}.keep_schedule();

-- ---------------------------------------------------------------- unique keys

-- Takes the keys of a bulk enqueue, all in one order, so that two producers cannot deadlock. Answers who holds each key: the
-- id itself, or a live job. When a holder ended between the insert and the look, everything is undone and done again: going
-- on from there would take a key out of order. `p_patience` is a lock timeout; when it is over the key that another open
-- transaction holds is named, with SQLSTATE HW002.
create function {schema}.take_keys(p_keys text[], p_ids bigint[], p_patience text default null)
returns table (id bigint, holder bigint)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    was     constant text := current_setting('lock_timeout');
    holders bigint[];
    held_up boolean;
    wanted  record;
begin
    loop
        held_up := false;
        perform set_config('lock_timeout', coalesce(p_patience, was), true);
        begin
            insert into {schema}.job_key (key, id)
            select x.key, x.id from unnest(p_keys, p_ids) x(key, id) order by x.key, x.id
            on conflict do nothing;
            holders := array(                                           -- a new statement sees who won
                select (select k.id from {schema}.job_key k where k.key = x.key)
                from unnest(p_keys) with ordinality x(key, place) order by x.place);
            if array_position(holders, null) is not null then
                raise exception using errcode = 'HW003';
            end if;
            exit;
        exception
            when sqlstate 'HW003' then null;
            when lock_not_available then held_up := true;
        end;
        if held_up then
            if p_patience is null then
                raise exception 'canceling statement due to lock timeout' using errcode = 'lock_not_available';
            end if;
            perform set_config('lock_timeout', '20ms', true);
            for wanted in select x.key, x.id from unnest(p_keys, p_ids) x(key, id) order by x.key, x.id loop
                begin
                    insert into {schema}.job_key (key, id) values (wanted.key, wanted.id) on conflict do nothing;
                exception when lock_not_available then
                    raise exception 'howdah: key % is held by another transaction that is still open', quote_literal(wanted.key)
                        using errcode = 'HW002', detail = wanted.key;
                end;
            end loop;                                                   -- none is held any more: look again
        end if;
    end loop;
    perform set_config('lock_timeout', was, true);
    return query select * from unnest(p_ids, holders);
end $howdah$;

-- ---------------------------------------------------------------- moments

-- Replacing a function makes it work with the rights of its caller again; where deploy/roles.sql gave it those of its owner,
-- it keeps them.
do $howdah$ begin
    perform set_config('howdah.definer', p.prosecdef::text, true) from pg_proc p where p.oid = {'schema.enqueue'}::regproc;
end $howdah$;

-- As before, but `run_at` must be a moment that Python can read in every time zone.
create or replace function {schema}.enqueue(
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
    elsif not (run_at >= '0001-01-02 00:00:00+00' and run_at < '9999-12-30 00:00:00+00') then
        raise exception 'howdah: run_at must be a moment from 0001-01-02 to 9999-12-29, got %', run_at using errcode = 'invalid_parameter_value';
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

do $howdah$ begin
    if current_setting('howdah.definer') = 'true' then
        alter function {schema}.enqueue security definer;
    end if;
end $howdah$;

-- ---------------------------------------------------------------- webhooks

-- Notices become jobs webhook by webhook.
create index notice_webhook on {schema}.notice (webhook, id);
