-- works from: 5
-- 0006: platform kinds: jobs of Howdah itself (`howdah:…`) cannot be enqueued from outside.

do $howdah$ begin
    perform set_config('howdah.definer', p.prosecdef::text, true) from pg_proc p where p.oid = {'schema.enqueue'}::regproc;
end $howdah$;

-- enqueue: add one job, from any language, in any transaction.
-- in:  the fields of the job; delay is in seconds and replaces run_at
-- out: id      of the job, or of the live job that holds the key
--      fresh   false if the key was held: no job was added
--
-- A held key locks nothing: an upsert would lock the row of the key until the end of the caller's transaction and stall the
-- ack of its holder. run_at is bounded to what Python can represent in every time zone. A transaction that is REPEATABLE READ
-- or SERIALIZABLE still sees the row of a holder that has ended, beside a row it has inserted itself: ids rise, so the
-- larger one is the holder.
--
-- Kinds that start with `howdah:` are Howdah's own: their jobs delete finished jobs and sign messages. While a node of
-- release 0.2 is alive, a role that may relay notices may still enqueue deliveries, because its nodes do it with this function.
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
    if starts_with(kind, 'howdah:') then
        -- a statement of its own: other kinds do not lock these tables
        if not (
            starts_with(kind, 'howdah:webhook:') and queue = 'howdah' and has_table_privilege(session_user, {'schema.notice'}, 'delete')
            and exists (select from {schema}.node n where n.version ~ '^0\.[012](\.|$)' and not n.remote and n.stopped_at is null and n.state <> 'offline'))
        then
            raise exception 'howdah: kinds that start with "howdah:" are reserved for Howdah, got %', quote_literal(kind)
                using errcode = 'invalid_parameter_value';
        end if;
    end if;
    fresh := true;
    if key is null then
        id := nextval({'schema.job_id'});
    else
        loop
            insert into {schema}.job_key as k (key, id) values (key, nextval({'schema.job_id'}))
            on conflict on constraint job_key_pkey do nothing returning k.id into id;
            exit when id is not null;
            -- a new statement has a new snapshot, which shows the winner
            select k.id into id from {schema}.job_key k where k.key = enqueue.key order by k.id desc limit 1;
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
        perform {schema}.notify_workers(queue);
    end if;
end $howdah$;

do $howdah$ begin
    if current_setting('howdah.definer') = 'true' then
        alter function {schema}.enqueue security definer;
    end if;
end $howdah$;

-- enqueue_own: add one job of Howdah itself to its reserved queue. Runs with the privileges of the caller, so only a role
-- that may write the tables can use it.
-- out: id of the job
create function {schema}.enqueue_own(kind text, args json, max_attempts int, timeout float8) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
#variable_conflict use_variable
declare
    queue constant text := 'howdah';
    id    constant bigint := nextval({'schema.job_id'});
begin
    insert into {schema}.job (id, timeout, max_attempts, queue, kind, args) values (id, timeout, max_attempts, queue, kind, args);
    insert into {schema}.ready (lo, hi, priority, attempt, queue, kind) values (id, id + 1, 0, 0, queue, kind);
    if not exists (select from {schema}.lane l where l.queue = 'howdah' and l.priority = 0) then
        insert into {schema}.lane values (queue, 0);
    end if;
    perform {schema}.notify_workers(queue);
    return id;
end $howdah$;
