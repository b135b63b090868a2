-- 0008: partitions are created and dropped without holding up anyone.
-- works from: 5
--
-- Creating and dropping a partition needs locks that exclude every other user of `job` and `done`. A session that waits for
-- such a lock holds up all that come after it, so these functions wait outside of the lock queue until no transaction has
-- held the tables for longer than a moment, and then wait in it for a few milliseconds. What takes long (reading the
-- partition, dropping its files) is done without the lock.

-- What could not be done lately because other transactions held the tables. Empty most of the time.
create table {schema}.upkeep (
    task   text primary key,                                            -- grow or prune
    since  timestamptz not null default clock_timestamp(),              -- of the first try without success
    at     timestamptz not null default clock_timestamp(),              -- of the last one
    holder text                                                         -- a transaction that held the tables at the last one
);

-- lock_holders: return the transactions of other sessions that hold a lock on one of the tables.
create function {schema}.lock_holders(p_tables regclass[]) returns text[] volatile
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}')
    from pg_locks l
    where l.locktype = 'relation' and l.granted and l.relation = any(p_tables::oid[])
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.pid is distinct from pg_backend_pid()
$howdah$;

-- await_unlocked: wait until no other transaction has held a lock on one of the tables for longer than a moment.
-- in:  p_tables
--      p_seconds   the longest wait
-- out: false if there was no such moment
--
-- A transaction that was there 30 milliseconds ago and still is, is a long one: a report, a dump, a handler that has enqueued.
create function {schema}.await_unlocked(p_tables regclass[], p_seconds float8) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    until  timestamptz := clock_timestamp() + p_seconds * interval '1 second';
    pause  float8 := 0.03;
    before text[] := {schema}.lock_holders(p_tables);
    after  text[];
begin
    while cardinality(before) > 0 loop
        perform pg_sleep(pause);
        after := {schema}.lock_holders(p_tables);
        if not before && after then
            return true;
        elsif clock_timestamp() > until then
            return false;
        end if;
        before := after;
        pause := least(pause * 1.5, 0.5);
    end loop;
    return true;
end $howdah$;

-- note_blocked: note that a task of upkeep could not be done, and a transaction that prevented it.
create function {schema}.note_blocked(p_task text, p_tables regclass[]) returns void
language sql set search_path = pg_catalog, pg_temp as $howdah$
    insert into {schema}.upkeep as u (task, holder)
    select p_task, (
        select coalesce(
            (select format('process %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename::text, '?'))
             from pg_stat_activity a where a.pid = l.pid),
            (select format('prepared transaction %L', p.gid)
             from pg_prepared_xacts p where l.pid is null and l.virtualtransaction = '-1/' || p.transaction::text), '?')
        from pg_locks l
        where l.locktype = 'relation' and l.granted and l.relation = any(p_tables::oid[])
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and l.pid is distinct from pg_backend_pid()
        order by l.waitstart, l.pid limit 1)
    on conflict (task) do update set at = clock_timestamp(), holder = coalesce(excluded.holder, u.holder)
$howdah$;

-- The functions below keep the rights with which deploy/roles.sql lets them run. Pruning rows now reads the partitions
-- themselves, which belong to the owner, so it needs the same rights as dropping them.
do $howdah$ begin
    perform set_config('howdah.definer', p.prosecdef::text, true) from pg_proc p where p.oid = {'schema.prune_partition'}::regproc;
end $howdah$;

-- is_indexed: return whether a partition of `done` has the index by time.
create function {schema}.is_indexed(p_partition regclass) returns boolean stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select exists (
        select from pg_index x join pg_class c on c.oid = x.indexrelid join pg_am m on m.oid = c.relam
        where x.indrelid = p_partition and m.amname = 'brin' and x.indisvalid)
$howdah$;

-- index_finished: index a partition of `done` by the time its jobs ended, so that little is read when nothing is due.
--
-- One entry per quarter of a megabyte, which costs an ack next to nothing.
create function {schema}.index_finished(p_partition text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if not {schema}.is_indexed(format('%I.%I', {'schema'}, p_partition)::regclass) then
        execute format('create index on %I.%I using brin (finished_at) with (pages_per_range = 32, autosummarize = on)', {'schema'}, p_partition);
    end if;
end $howdah$;

-- Partitions that are large already do without, until they are dropped.
select {schema}.index_finished(c.relname::text)
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = {'schema.done'}::regclass and pg_relation_size(c.oid) < 10000000;

-- grow: create partitions of `job` and `done` ahead of the id sequence.
-- in:  ahead   partitions that must exist beyond the newest id
--      size    ids per partition; ten or a hundred times as many on a busy system
-- out: partitions created; 0 also while another process is in this function, or a long transaction reads the default partition
--
-- To attach a partition locks the default one against every reader. A dump reads it for as long as it lasts, so there must be
-- partitions for hours: the present one and those ahead hold what comes in four hours at the present rate.
--
-- The patterns use [0-9], not \d: with standard_conforming_strings = off a backslash in a literal is an escape.
create or replace function {schema}.grow(ahead int default 4, size bigint default 1000000) returns int
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '20ms' as $howdah$
declare
    defaults constant regclass[] := array[{'schema.job_default'}, {'schema.done_default'}]::regclass[];
    small    constant bigint := size;
    head     bigint;
    top      bigint;
    made     text[] := '{}';
    part     text;
    reader   text;
begin
    if not pg_try_advisory_xact_lock(hashtextextended({'schema'} || ' grow', 0)) then
        return 0;                                                       -- another process is doing it
    end if;
    select case when is_called then last_value else -1 end into head from {schema}.job_id;
    select coalesce(max(substring(c.relname from '^job_[0-9]+_([0-9]+)$')::bigint), 0) into top
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = {'schema.job'}::regclass;
    -- a busy system (one or ten million ids within an hour) gets larger partitions
    for level in 1..2 loop
        exit when size <> small * 10 ^ (level - 1);
        if exists (select from {schema}.job j where j.id between head - size and head - size + 1000 and j.enqueued_at > now() - interval '1 hour') then
            size := size * 10;
        end if;
    end loop;
    -- ids that were already drawn stay where they are, in the default partition
    top := greatest(top, case when top <= head then head + size / 2 else 0 end);
    if top >= head + ahead * size then
        return 0;
    elsif not {schema}.await_unlocked(defaults, 0.1) then
        -- when there is never such a moment for ten minutes, one call in twenty waits in the lock queue after all; enqueues
        -- do not need the default partition
        if random() > 0.05 or not exists (
            select from {schema}.upkeep u where u.task = 'grow' and u.since < clock_timestamp() - interval '10 minutes')
        then
            perform {schema}.note_blocked('grow', defaults);
            return 0;
        end if;
        perform set_config('lock_timeout', '100ms', true);
    end if;
    -- LIKE and ATTACH: CREATE TABLE ... PARTITION OF locks the parent against running statements
    while top < head + ahead * size loop
        foreach part in array array['job', 'done'] loop
            execute format('create table %1$I.%2$s_%3$s_%4$s (like %1$I.%2$s including all, check (id >= %3$s and id < %4$s))', {'schema'}, part, top, top + size);
        end loop;
        perform {schema}.index_finished(format('done_%s_%s', top, top + size));
        -- a claim names one partition: who may read `job` may read that
        for reader in
            select case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_class c cross join lateral aclexplode(c.relacl) a
            where c.oid = {'schema.job'}::regclass and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
        loop
            execute format('grant select on %I.job_%s_%s to %s', {'schema'}, top, top + size, reader);
        end loop;
        made := made || format('%s_%s', top, top + size);
        top := top + size;
    end loop;
    perform set_config('synchronous_commit', 'off', true);              -- the locks are not held until the disk has answered
    foreach part in array made loop
        execute format('alter table %1$I.job attach partition %1$I.job_%2$s for values from (%3$s) to (%4$s)', {'schema'}, part, split_part(part, '_', 1), split_part(part, '_', 2));
        execute format('alter table %1$I.done attach partition %1$I.done_%2$s for values from (%3$s) to (%4$s)', {'schema'}, part, split_part(part, '_', 1), split_part(part, '_', 2));
    end loop;
    delete from {schema}.upkeep where task = 'grow';
    return cardinality(made);
end $howdah$;

-- prunable: return the partitions that can be dropped: no ids left to give out, all successes past retention, and few jobs to
-- keep: not more than are dropped, or 500.
-- in:  done_before, failed_before, keep_at_most   as in prune_partition
-- out: lo, hi      its ids, the oldest first
--
-- Mostly the newest hundred jobs of a partition tell that it is too young.
create function {schema}.prunable(done_before timestamptz, failed_before timestamptz, keep_at_most int)
returns table (lo bigint, hi bigint)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = on as $howdah$
declare
    head bigint;
    due  boolean;
    keep bigint;
begin
    select last_value into head from {schema}.job_id;
    for lo, hi in
        select substring(c.relname from '^job_([0-9]+)_')::bigint, substring(c.relname from '_([0-9]+)$')::bigint
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = {'schema.job'}::regclass and c.relname ~ '^job_[0-9]+_[0-9]+$'
        order by 1
    loop
        exit when hi > head;                                            -- ids of it are still to be drawn
        perform set_config('enable_seqscan', case when {schema}.is_indexed(format('%I.done_%s_%s', {'schema'}, lo, hi)::regclass) then 'off' else 'on' end, true);
        execute format($sql$
            select not exists (
                select from (select d.state, d.finished_at from %1$I.done_%2$s_%3$s d order by d.id desc limit 100) n
                where n.state = 'd' and n.finished_at >= $1)$sql$, {'schema'}, lo, hi) into due using done_before;
        continue when not due;
        execute format($sql$
            select not exists (select from %1$I.done_%2$s_%3$s d where d.state = 'd' and d.finished_at >= $1)$sql$, {'schema'}, lo, hi)
        into due using done_before;
        continue when not due;
        execute format($sql$
            select (select count(*) from (
                        select from %1$I.done_%2$s_%3$s d where d.state <> 'd' and d.finished_at >= $1 limit $2 + 1) bad)
                 + (select coalesce(sum(least(r.hi, $4) - greatest(r.lo, $3)), 0) from %1$I.ready r where r.hi > $3 and r.lo < $4)
                 + (select count(*) from %1$I.later l where l.id >= $3 and l.id < $4)
                 + (select count(*) from %1$I.leased($3, $4))$sql$, {'schema'}, lo, hi)
        into keep using failed_before, keep_at_most, lo, hi;
        if keep > 500 then
            execute format($sql$
                select count(*) >= $3 from (
                    select from %1$I.done_%2$s_%3$s d
                    where d.finished_at < case d.state when 'd' then $1 else $2 end limit $3) old$sql$, {'schema'}, lo, hi)
            into due using done_before, failed_before, keep;
            continue when not due or keep > keep_at_most;
        end if;
        return next;
    end loop;
end $howdah$;

-- prune_partition: drop the oldest partition that has no ids left to give out and whose successes are all past retention.
-- in:  done_before, failed_before   retention of successes, and of failed and cancelled jobs
--      keep_at_most                 a partition with more rows to keep is left for later
-- out: jobs dropped; null: no partition can be dropped (now; see the table `upkeep`)
--
-- Rows that must be kept longer (failures, live jobs, jobs that a lease still names) stay: a few hundred move to the default
-- partition, more become a partition of their own in the place of the old one. The old one is detached and renamed in one
-- transaction. Its files are dropped by the call that finds no other partition, on another node if this one dies: a drop
-- waits for the disk, which must not happen while the tables are locked. For the same reason the commit does not wait.
--
-- The partition is read before it is locked. What may have changed since is read again behind the locks: jobs that ended
-- meanwhile, also after a retry, and those that live. One process at a time.
create or replace function {schema}.prune_partition(done_before timestamptz, failed_before timestamptz, keep_at_most int default 100000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '2s' set enable_seqscan = on as $howdah$
declare
    few   constant int := 500;                                          -- rows that may be moved while the tables are locked
    part  record;
    names regclass[];
    kept  bigint[];
    moved bigint[];
    fresh bigint[];
    total bigint;
    since timestamptz;
    blocked boolean := false;
    late  boolean;
begin
    perform {schema}.require_read_committed();
    perform pg_advisory_xact_lock(hashtextextended({'schema'} || ' prune', 0));
    for part in
        select p.lo, p.hi, format('%s_%s', p.lo, p.hi) as name from {schema}.prunable(done_before, failed_before, keep_at_most) p
    loop
        since := clock_timestamp() - interval '1 hour';                 -- an hour: the clock may go back
        execute format($sql$
            select count(*), coalesce(array_agg(j.id) filter (
                where d.id is null or d.finished_at >= case d.state when 'd' then $1 else $2 end), '{}')
            from %1$I.job_%2$s j left join %1$I.done_%2$s d on d.id = j.id$sql$, {'schema'}, part.name)
        into total, kept using done_before, failed_before;
        continue when cardinality(kept) > keep_at_most or cardinality(kept) > greatest(few, total - cardinality(kept));
        names := array[{'schema.job'}, {'schema.done'}, {'schema.job_default'}, {'schema.done_default'}]::regclass[]
            || array[format('%I.job_%s', {'schema'}, part.name), format('%I.done_%s', {'schema'}, part.name)]::regclass[];
        perform set_config('enable_seqscan', case when {schema}.is_indexed(names[6]) then 'off' else 'on' end, true);
        -- on a server where there is never such a moment, wait in the lock queue after all: four times an hour
        late := exists (select from {schema}.upkeep u where u.task = 'prune' and u.since < clock_timestamp() - interval '6 hours');
        for try in 1..4 loop
            exit when not {schema}.await_unlocked(names, case when late then 1 else 10 end) and not late;
            begin
                perform set_config('lock_timeout', case when late then '100ms' else '20ms' end, true);
                execute format('lock table %1$I.job_%2$s, %1$I.done_%2$s in share mode', {'schema'}, part.name);
                -- From here on the partition does not change. A job that ended with success since it was read was claimed
                -- since, so its time is new; a cancelled one may have the time of a long transaction.
                execute format($sql$
                    select array(
                        select unnest($4)
                        union select d.id from %1$I.done_%2$s d where d.finished_at >= $3 and d.finished_at >= $1 and d.state = 'd'
                        union select d.id from %1$I.done_%2$s d where d.finished_at >= $2 and d.state <> 'd')$sql$, {'schema'}, part.name)
                into moved using done_before, failed_before, since, kept;
                if cardinality(moved) > few then
                    perform {schema}.copy_kept(part.lo, part.hi, moved);
                end if;
                -- the tables that an enqueue needs come last
                execute format('lock table %1$I.job_%2$s, %1$I.done_%2$s, %1$I.job_default, %1$I.done_default,'
                    || ' only %1$I.job, only %1$I.done in access exclusive mode', {'schema'}, part.name);
            exception when lock_not_available or deadlock_detected then
                moved := null;
            end;
            exit when moved is not null;
            perform set_config('lock_timeout', '2s', true);
            perform pg_sleep(2);                                        -- one percent of the time is spent in the lock queue
        end loop;
        if moved is null then
            perform {schema}.note_blocked('prune', names);
            blocked := true;
            exit;
        end if;
        fresh := array(
            select live.id from (
                select i.id from {schema}.ready r cross join lateral generate_series(greatest(r.lo, part.lo), least(r.hi, part.hi) - 1) i(id)
                where r.hi > part.lo and r.lo < part.hi
                union select l.id from {schema}.later l where l.id >= part.lo and l.id < part.hi
                union select l.id from {schema}.leased(part.lo, part.hi) l) live
            except select unnest(moved));
        perform {schema}.detach_partition(part.lo, part.hi, moved, fresh);
        perform set_config('synchronous_commit', 'off', true);
        delete from {schema}.upkeep where task = 'prune';
        return greatest(total - cardinality(moved) - cardinality(fresh), 0);
    end loop;
    if not blocked then
        delete from {schema}.upkeep where task = 'prune';
    end if;
    perform set_config('lock_timeout', '100ms', true);
    perform {schema}.drop_pruned();
    return null;
end $howdah$;

-- copy_kept: copy jobs of a partition into one that is to take its place.
create function {schema}.copy_kept(p_lo bigint, p_hi bigint, p_ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $howdah$
declare
    part text;
begin
    foreach part in array array['job', 'done'] loop
        execute format('create table %1$I.kept_%2$s_%3$s_%4$s (like %1$I.%2$s including all, check (id >= %3$s and id < %4$s))', {'schema'}, part, p_lo, p_hi);
        execute format('insert into %1$I.kept_%2$s_%3$s_%4$s select * from %1$I.%2$s_%3$s_%4$s where id = any($1)', {'schema'}, part, p_lo, p_hi) using p_ids;
    end loop;
    perform {schema}.index_finished(format('kept_done_%s_%s', p_lo, p_hi));
end $howdah$;

-- detach_partition: detach a partition and rename it to pruned_…, and put what is kept of it in its place.
-- in:  p_lo, p_hi   the partition; the caller has locked it, its parents and the default partitions
--      p_ids        jobs to keep; already in kept_… if there is such a table
--      p_more       more of them, which are not
create function {schema}.detach_partition(p_lo bigint, p_hi bigint, p_ids bigint[], p_more bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $howdah$
declare
    kept   boolean := to_regclass(format('%I.kept_job_%s_%s', {'schema'}, p_lo, p_hi)) is not null;
    part   text;
    pruned text;
begin
    foreach part in array array['job', 'done'] loop
        pruned := format('pruned_%s_%s_%s_%s', part, p_lo, p_hi, format('%I.%s_%s_%s', {'schema'}, part, p_lo, p_hi)::regclass::oid);
        execute format('alter table %1$I.%2$s detach partition %1$I.%2$s_%3$s_%4$s', {'schema'}, part, p_lo, p_hi);
        execute format('alter table %1$I.%2$s_%3$s_%4$s rename to %5$I', {'schema'}, part, p_lo, p_hi, pruned);
        if kept then
            execute format('alter table %1$I.kept_%2$s_%3$s_%4$s rename to %2$s_%3$s_%4$s', {'schema'}, part, p_lo, p_hi);
            execute format('alter table %1$I.%2$s attach partition %1$I.%2$s_%3$s_%4$s for values from (%3$s) to (%4$s)', {'schema'}, part, p_lo, p_hi);
        end if;
        execute format('insert into %1$I.%2$s select * from %1$I.%3$I where id = any($1)', {'schema'}, part, pruned)
        using case when kept then p_more else p_ids || p_more end;
    end loop;
end $howdah$;

-- drop_pruned: drop partitions that prune_partition has detached, and what is left of their jobs.
-- out: tables dropped; one that a transaction reads is left for the next call
create function {schema}.drop_pruned() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    part    record;
    dropped int := 0;
begin
    for part in
        select c.relname as name, substring(c.relname from '_([0-9]+)_[0-9]+_[0-9]+$')::bigint as lo,
            substring(c.relname from '_([0-9]+)_[0-9]+$')::bigint as hi
        from pg_class c
        where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = {'schema'}) and c.relkind = 'r' and not c.relispartition
          and c.relname ~ '^pruned_(job|done)_[0-9]+_[0-9]+_[0-9]+$'
        order by c.relname limit 100
    loop
        if part.name ~ '^pruned_job' then
            delete from {schema}.attempt a
            where a.id >= part.lo and a.id < part.hi and not exists (select from {schema}.job j where j.id = a.id offset 0);
        end if;
        begin
            execute format('drop table %I.%I', {'schema'}, part.name);
            dropped := dropped + 1;
        exception when lock_not_available or deadlock_detected then
            null;
        end;
    end loop;
    return dropped;
end $howdah$;

-- prune_rows: delete rows past retention that no dropped partition will take soon: in the default partition, in the newest
-- one, and in those that fill for weeks.
-- in:  done_before, failed_before   as in prune_partition
--      most                         jobs per call
-- out: jobs deleted
--
-- A partition that can be dropped, or will within a twentieth of the retention, is left to prune_partition, unless that could
-- not get the locks for a day. Jobs that are being retried or deleted at this moment are skipped: their row in `done` would
-- be gone when we come to delete it, and the waiting job would be deleted anyway. Jobs that a lease still names are left for
-- the next call: a repeated ack, or a transaction that commits late, must find their outcome, or it would write one for a job
-- that no longer exists. Rows in `done` without a job, left by such an ack, are deleted too: among the newest `most`; older
-- ones with their retention.
--
-- Where there is an index by time, no estimate may turn its use into reading the whole partition.
create or replace function {schema}.prune_rows(done_before timestamptz, failed_before timestamptz, most int default 10000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = on set enable_indexscan = on as $howdah$
declare
    soon  constant timestamptz := done_before + greatest(clock_timestamp() - done_before, interval '0') * 0.05;
    old   bigint[] := '{}';
    found bigint[];
    spare bigint[] := '{}';
    part  record;
begin
    if not exists (select from {schema}.upkeep u where u.task = 'prune' and u.since < clock_timestamp() - interval '1 day') then
        spare := array(select p.lo from {schema}.prunable(soon, failed_before, 100000) p);
    end if;
    for part in
        select c.relname as name, {schema}.is_indexed(c.oid) as indexed
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = {'schema.done'}::regclass
          and not coalesce(substring(c.relname from '^done_([0-9]+)_')::bigint = any(spare), false)
        order by c.relname
    loop
        perform set_config('enable_seqscan', case when part.indexed then 'off' else 'on' end, true),
            set_config('enable_indexscan', case when part.indexed then 'off' else 'on' end, true);
        execute format($sql$
            select array(
                select d.id from %1$I.%2$I d
                where d.finished_at < greatest($1, $2) and d.finished_at < case d.state when 'd' then $1 else $2 end
                  and d.id not in (select l.id from %1$I.leased(0, 9223372036854775807) l)
                limit $3
                for update of d skip locked)$sql$, {'schema'}, part.name)
        into found using done_before, failed_before, most - cardinality(old);
        old := old || found;
        exit when cardinality(old) >= most;
    end loop;
    perform set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'on', true);
    delete from {schema}.done d where d.id = any(old);
    delete from {schema}.job j where j.id = any(old);
    delete from {schema}.attempt a where a.id = any(old);
    if not pg_try_advisory_xact_lock(hashtextextended({'schema'} || ' prune rows', 0)) then
        return cardinality(old);                                        -- the rest is done by another process at this moment
    end if;
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

do $howdah$ begin
    if current_setting('howdah.definer') = 'true' then
        alter function {schema}.grow security definer;
        alter function {schema}.prune_partition security definer;
        alter function {schema}.prune_rows security definer;
        revoke all on table {schema}.upkeep from public;
    end if;
end $howdah$;
