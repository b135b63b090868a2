-- 0020: keyed enqueues in transactions with one snapshot.
--
-- A transaction that is REPEATABLE READ or SERIALIZABLE goes on seeing the row of a holder that has ended since, beside the row
-- it has inserted itself. A bulk failed on the two rows, and a second enqueue could name the job that had ended. Ids rise, so
-- the larger one of the two is the holder.

-- As in 0016, but for that.
create or replace function {schema}.take_keys(p_keys text[], p_ids bigint[], p_patience text default null)
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
                select (select k.id from {schema}.job_key k where k.key = x.key order by k.id desc limit 1)
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

do $howdah$ begin
    perform set_config('howdah.definer', p.prosecdef::text, true) from pg_proc p where p.oid = {'schema.enqueue'}::regproc;
end $howdah$;

-- As in 0016, but for that.
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
            -- a new snapshot sees who won
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
        perform {schema}.ring(queue);
    end if;
end $howdah$;

do $howdah$ begin
    if current_setting('howdah.definer') = 'true' then
        alter function {schema}.enqueue security definer;
    end if;
end $howdah$;
