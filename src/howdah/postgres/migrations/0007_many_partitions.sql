-- works from: 5
-- 0007: many partitions: lookups of jobs by id touch only the partitions that hold them, also when they are planned.
--
-- The cached plan of a lookup names every partition of `job` and `done`, and every execution locks and opens all of them.
-- Above sixteen partitions these functions plan each lookup anew, with the smallest and the largest id as constants: planning
-- leaves out the other partitions, and costs less than the opening of a few dozen.

-- has_many_partitions: return whether a lookup should be planned for the partitions it needs.
create function {schema}.has_many_partitions() returns boolean stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select count(*) > 16 from (select from pg_inherits where inhparent = {'schema.job'}::regclass limit 17) x
$howdah$;

-- open_jobs: look up jobs by id, and whether they have ended.
-- in:  p_ids
-- out: one array per column with one element per id: queues, kinds, priorities, keys, maxima (attempts), which are null where
--      there is no job; states, nodes, attempts of `done`, which are null where the job has not ended
--
-- Arrays in the order of the ids need no join. The caller has locked the leases of the jobs in an earlier statement.
create function {schema}.open_jobs(
    p_ids bigint[], out queues text[], out kinds text[], out priorities smallint[], out keys text[], out maxima smallint[],
    out states "char"[], out nodes int[], out attempts smallint[])
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
declare
    low  bigint := (select min(x) from unnest(p_ids) x);
    high bigint := (select max(x) from unnest(p_ids) x);
begin
    if {schema}.has_many_partitions() then
        perform set_config('plan_cache_mode', 'force_custom_plan', true);   -- until the end of this function
    end if;
    select array_agg(y.queue), array_agg(y.kind), array_agg(y.priority), array_agg(y.key), array_agg(y.max_attempts),
        array_agg(y.state), array_agg(y.node), array_agg(y.attempt)
    into queues, kinds, priorities, keys, maxima, states, nodes, attempts
    from (
        select j.*, d.*
        from unnest(p_ids) with ordinality x(id, place)
        left join lateral (
            select b.queue, b.kind, b.priority, b.key, b.max_attempts
            from {schema}.job b where b.id = x.id and b.id >= low and b.id <= high offset 0) j on true
        left join lateral (
            select e.state, e.node, e.attempt
            from {schema}.done e where e.id = x.id and e.id >= low and e.id <= high offset 0) d on true
        order by x.place offset 0
    ) y;
end $howdah$;

-- jobs_of: return everything about these jobs, as the view `jobs` has it.
-- in:  p_ids
--
-- With a constant id the view is planned for one partition of `job` and of `done`. For more than a few ids one plan is cheaper.
create function {schema}.jobs_of(p_ids bigint[]) returns setof {schema}.jobs
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $howdah$
declare
    each bigint;
begin
    if cardinality(p_ids) <= 4 and {schema}.has_many_partitions() then
        perform set_config('plan_cache_mode', 'force_custom_plan', true);
        foreach each in array p_ids loop
            return query select * from {schema}.jobs v where v.id = each;
        end loop;
    else
        -- OFFSET 0 keeps the view a lookup per id; flattened, the planner may join whole tables
        return query
            select v.* from unnest(p_ids) p(id) cross join lateral (select * from {schema}.jobs j where j.id = p.id offset 0) v;
    end if;
end $howdah$;

-- requeue_leased: end leases and put their open jobs back into the queue.
-- in:  tokens     leases that the caller has locked in an earlier statement
--      charge     true: the node died; an attempt is used up, and the jobs go to the back of the queue
--                 false: the jobs keep their attempts and their place
--      why        error text of jobs that end here
-- out: requeued   jobs put back
--      ended      jobs that ended instead: cancelled, or failed for the last time
--
-- The lock in an earlier statement is essential: an ack that committed before that lock is visible to the snapshot of this
-- statement. To lock and read in one statement would requeue jobs that have ended.
--
-- Here and in `ack`, other tables are probed once per job (OFFSET 0 keeps the planner from making a join of it) and deleted
-- from by key. A join that was planned while a table was empty would read all of it later on.
create or replace function {schema}.requeue_leased(tokens bigint[], charge boolean, why text, out requeued bigint, out ended bigint)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    named record;                                                       -- the jobs that the leases name, a column per array
    found record;                                                       -- what `job` and `done` say of them
begin
    select array_agg(l.token) as tokens, array_agg(l.node) as nodes, array_agg(l.claimed_at) as claimed_ats,
        array_agg(i.id) as ids, array_agg(r.rid) as rids, array_agg(r.attempt) as attempts
    into named
    from {schema}.lease l
    cross join lateral unnest(l.rids, l.los, l.his, l.attempts) r(rid, lo, hi, attempt)
    cross join lateral generate_series(r.lo, r.hi - 1) i(id)
    where l.token = any(requeue_leased.tokens);
    select * into found from {schema}.open_jobs(named.ids);
    with dropped as (
        delete from {schema}.lease where token = any(requeue_leased.tokens)
    ),
    open as materialized (
        select o.*,
            case when exists (select from {schema}.cancel_request c where c.id = o.id offset 0) then 'c'
                 when charge and o.attempt >= o.most then 'f'
                 else 'q' end as fate
        from unnest(named.tokens, named.nodes, named.claimed_ats, named.ids, named.rids, named.attempts,
                found.queues, found.kinds, found.priorities, found.keys, found.maxima, found.states)
            o(token, node, claimed_at, id, rid, attempt, queue, kind, priority, key, most, ended)
        where o.queue is not null and o.ended is null
          and not exists (select from {schema}.gone g where g.token = o.token and g.id = o.id offset 0)
    ),
    runs as (
        select min(rid) as rid, min(id) as lo, max(id) + 1 as hi, queue, kind, priority, attempt
        from (
            select *, id - row_number() over (partition by queue, kind, priority, attempt order by id) as g
            from open where fate = 'q') x
        group by queue, kind, priority, attempt, g
    ),
    queued as (
        -- released jobs keep their place; those of a dead node go to the back, so that a job that kills nodes does not run first again
        insert into {schema}.ready (rid, lo, hi, queue, kind, priority, attempt)
        select case when charge then nextval({'schema.arrival'}) else r.rid end, r.lo, r.hi, r.queue, r.kind, r.priority,
            case when charge then r.attempt else r.attempt - 1 end
        from (select * from runs order by rid, lo offset 0) r          -- sorted before nextval is called, whatever the plan
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
    keys as (
        delete from {schema}.job_key
        where key = any(array(
            select h.key from open o
            cross join lateral (select k.key from {schema}.job_key k where k.key = o.key and k.id = o.id offset 0) h
            where o.fate <> 'q'))
    ),
    requests as (delete from {schema}.cancel_request where id = any(array(select o.id from open o where o.fate = 'c'))),
    forget as (delete from {schema}.gone where token = any(requeue_leased.tokens)),
    notified as materialized (select {schema}.notify_workers(queue) from (select distinct queue from queued) q)
    select coalesce((select sum(n) from queued), 0)::bigint, (select count(*) from over) + 0 * (select count(*) from notified)
    into requeued, ended;
end $howdah$;

-- ack: record any outcomes of jobs.
-- in:  p_node     the node that holds the leases
--      tokens, ids, attempts, …   one element per job
--      outcomes   d done · f failed · c cancelled · r retry after delay (attempt charged) · s snooze for delay (not charged)
--                 · b back to the queue now (not charged)
--      delays     seconds, for r and s
--      tooks      microseconds
--      finished   leases that the node has finished with: what is left of them is released
-- out: token, id, fate   the recorded outcomes; jobs of lost leases are missing. Not only ids: one process may hold the same
--                        job under a lost and a new lease at the same time
--
-- Two statements: lock the leases, then read. Repeating the call changes nothing and returns the same outcomes. A job
-- reported twice in one call counts once. A lease ends when the last of its jobs has an outcome; a client's word is not
-- enough for that.
create or replace function {schema}.ack(
    p_node int, tokens bigint[], ids bigint[], attempts smallint[], outcomes "char"[], delays float8[], tooks bigint[],
    results json[], errors text[], messages text[], tracebacks text[], finished bigint[])
returns table (token bigint, id bigint, fate text)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
#variable_conflict use_column
declare
    held    bigint[];
    through bigint[];
    found   record;                                        -- what `job` and `done` say of the jobs, a column per array
begin
    perform {schema}.require_read_committed();
    held := array(
        select l.token from {schema}.lease l
        where (l.token = any(tokens) or l.token = any(finished)) and l.node = p_node
        order by l.token for update);
    select * into found from {schema}.open_jobs(ids);
    return query
    with a as materialized (
        select distinct on (a.id) a.*,
            case when a.outcome in ('r', 's', 'b') and exists (select from {schema}.cancel_request c where c.id = a.id offset 0) then 'c'
                 when a.outcome = 'r' and a.attempt >= a.most then 'f'
                 else a.outcome end as fate
        from unnest(tokens, ids, attempts, outcomes, delays, tooks, results, errors, messages, tracebacks,
                found.queues, found.kinds, found.priorities, found.keys, found.maxima, found.states)
            a(token, id, attempt, outcome, delay, took, result, error, message, traceback, queue, kind, priority, key, most, ended)
        where a.token = any(held) and a.queue is not null and a.ended is null
          and not exists (select from {schema}.gone g where g.token = a.token and g.id = a.id offset 0)
        order by a.id
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
        insert into {schema}.gone select a.token, a.id from a where a.fate in ('r', 's', 'b')
    ),
    keys as (
        delete from {schema}.job_key
        where key = any(array(
            select h.key from a
            cross join lateral (select k.key from {schema}.job_key k where k.key = a.key and k.id = a.id offset 0) h
            where a.fate in ('d', 'f', 'c')))
    ),
    requests as (delete from {schema}.cancel_request where id = any(array(select a.id from a where a.fate in ('d', 'f', 'c')))),
    counted as (
        update {schema}.lease l set remaining = l.remaining - n.jobs
        from (select a.token, count(*)::int as jobs from a group by a.token) n
        where l.token = n.token and l.token = any(array(select a.token from a))
    ),
    notified as materialized (select {schema}.notify_workers(queue) from (select distinct queue from back) q)
    select a.token, a.id, a.fate::text from a where (select count(*) from notified) >= 0
    union all                                              -- a repeated report: what this node recorded of this attempt
    select x.token, x.id, x.state::text
    from unnest(tokens, ids, attempts, found.states, found.nodes, found.attempts) x(token, id, attempt, state, node, recorded)
    where x.node = p_node and x.recorded = x.attempt;

    through := array(select x from unnest(held) x where x = any(finished));
    with ended as (
        -- by token, never by ctid: a heartbeat that commits while we wait for the lock moves the row
        delete from {schema}.lease l where l.token = any(held) and l.remaining = 0 returning l.token
    ),
    forgotten as (
        delete from {schema}.gone g where g.token = any(array(select e.token from ended e))
    )
    select array(select x from unnest(through) x except select e.token from ended e) into through;
    if cardinality(through) > 0 then
        perform {schema}.requeue_leased(through, false, 'released: its node has finished with the lease');
    end if;
end $howdah$;

