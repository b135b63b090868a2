-- 0017: functions that do the same whatever the settings of their caller are.

-- Replacing a function makes it work with the rights of its caller again; where deploy/roles.sql gave it those of its owner,
-- it keeps them.
select set_config('howdah.was_definer', (select p.prosecdef::text from pg_proc p where p.oid = {'schema.grow'}::regproc), true);

-- Finds the partitions there are also with standard_conforming_strings = off, where a backslash in a literal is an escape.
create or replace function {schema}.grow(ahead int default 4, size bigint default 1000000) returns int
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
    select coalesce(max(substring(c.relname from '^job_[0-9]+_([0-9]+)$')::bigint), 0) into top
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

do $howdah$ begin
    if current_setting('howdah.was_definer') = 'true' then
        alter function {schema}.grow security definer;
    end if;
end $howdah$;

alter function {schema}.fingerprint(text) set standard_conforming_strings = on;

-- Wakes sleeping workers of a queue. A transaction that is to be prepared (PREPARE TRANSACTION) must not notify:
-- `set local howdah.notify = off` leaves the wake-up out, and workers find the job when they poll next.
-- Called after the insert, so that this transaction already has its id: a worker that hung its sign too late to be seen
-- here finds it among the transactions in flight.
create or replace function {schema}.ring(queue text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if coalesce(pg_sequence_last_value({schema}.sign_of(queue)), 0) > (extract(epoch from clock_timestamp()) * 1000)::bigint then
        if coalesce(current_setting('howdah.notify', true), '') not in ('off', 'false', 'no', '0') then
            perform pg_notify({schema}.channel(), queue);
        end if;
    end if;
end $howdah$;
