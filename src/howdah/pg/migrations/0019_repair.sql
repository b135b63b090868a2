-- 0019: self-repair for all nodes together, and never of a job that is fine.

-- How far the search for misplaced jobs has come, and what it has found since the schema was made. One row.
create table {schema}.repair_state (
    only_row  boolean primary key default true check (only_row),
    next_id   bigint not null default 0,                                -- where the next look begins
    looked_at timestamptz,
    jobs      bigint not null default 0,                                -- jobs found in no place
    leases    bigint not null default 0,                                -- leases found with nothing left in them
    found_at  timestamptz                                               -- the last time either was found
) with (fillfactor = 50);
insert into {schema}.repair_state default values;

-- As in 0012, with these differences:
--   * Leases are read only if the part that is looked at has jobs that neither wait nor have ended.
--   * Before a job is queued again, one statement, so one snapshot, searches every place for it. The probe by `hi` does not
--     find a job whose run overlaps another run, and repair must not queue such a job a second time.
--   * A job whose time has not come goes to `later`, uncharged: it cannot have run.
--   * The charge counts from the last retry by a person, after which a job has all its attempts.
--   * A lease is empty when its last job has ended a minute ago. Its node may be about to report that the lease is over.
--   * A job that no longer exists does not keep a lease.
create or replace function {schema}.repair(
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
    perform {schema}.refuse_snapshots();
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
        -- most of them are running; those that have ended since the statement before are found in their new place
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
        -- what nothing names any more, with the last thing that is known of its attempts
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
        bell as materialized (select {schema}.ring(queue) from (select distinct queue from queued) q)
        select (select count(*) from queued) + (select count(*) from delayed) + 0 * (select count(*) from bell),
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
        perform {schema}.hand_back(empty, false, 'released: nothing was left of the lease');
    end if;
end $howdah$;

-- The next look of all nodes together: at most one in `pace` seconds, whatever the number of nodes. `looked` is null when
-- another node looks now or has just looked.
create function {schema}.repair_next(
    most int, pace float8, out looked bigint, out requeued bigint, out ended bigint, out leases bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    state {schema}.repair_state;
    seen  record;
begin
    requeued := 0; ended := 0; leases := 0;
    perform {schema}.refuse_snapshots();
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
