-- 0010: what two who meet at the wrong moment left behind.

-- As in 0001, but a job that somebody retries or deletes at this moment is left to them: its outcome was already gone when
-- we came to delete it, and the job itself, which waited again, was deleted all the same.
create or replace function {schema}.prune_rows(done_before timestamptz, failed_before timestamptz, most int default 10000)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    old bigint[];
begin
    old := array(
        select d.id from {schema}.done d
        where d.finished_at < case d.state when 'd' then done_before else failed_before end
        limit most
        for update skip locked);
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

-- Carries out wishes that missed their job: it was on the move when somebody cancelled it, and the one did not see what the
-- other had not committed yet. It waits now, and would be started once more. Returns how many were cancelled.
create function {schema}.carry_out(most int default 1000) returns int
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms'
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $howdah$
declare
    missed bigint[];
begin
    delete from {schema}.cancel_request c where exists (select from {schema}.done d where d.id = c.id);
    missed := array(
        select c.id from {schema}.cancel_request c
        where exists (select from {schema}.later l where l.id = c.id)
           or (select r.lo from {schema}.ready r where r.hi > c.id order by r.hi limit 1) <= c.id
        order by c.id limit most);
    if cardinality(missed) > 0 then
        perform {schema}.cancel(missed);
    end if;
    return cardinality(missed);
end $howdah$;

-- As in 0006, and it carries out wishes that missed their job. Whoever holds up that does not hold up the leases.
create or replace function {schema}.reset(most int default 100, out leases int, out requeued bigint, out ended bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    taken bigint[];
begin
    perform {schema}.refuse_snapshots();
    if exists (select from {schema}.cancel_request) then
        begin
            perform {schema}.carry_out();
        exception when lock_not_available or deadlock_detected then
            null;                                                       -- the next one does it
        end;
    end if;
    taken := array(select token from {schema}.lease where expires_at < clock_timestamp() order by token limit most for update skip locked);
    leases := cardinality(taken);
    requeued := 0;
    ended := 0;
    if leases > 0 then
        select b.requeued, b.ended into requeued, ended
        from {schema}.hand_back(taken, true, 'lease expired: the node stopped renewing it') b;
    end if;
    update {schema}.node n set state = 'offline', running = 0, stopped_at = coalesce(n.stopped_at, n.beat_at)
    where n.state <> 'offline'
      and n.beat_at < clock_timestamp() - case when n.credential is null then interval '90 seconds' else interval '1 day' end;
end $howdah$;

-- Notes that a consumer failed on an event. Two statements: lock, then look. Somebody may move the consumer at this very
-- moment, and whoever waited for that within one statement would not see that the share is no longer theirs, and halt it.
create function {schema}.fault(
    p_consumer text, p_part int, p_node int, p_epoch bigint, p_failures int, p_halted boolean, p_position bigint,
    p_error text, p_message text, p_traceback text)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    perform from {schema}.checkpoint k where k.consumer = p_consumer and k.part = p_part for no key update;
    update {schema}.checkpoint k
    set failures = p_failures, halted = p_halted, error_position = p_position, error = p_error, message = p_message,
        traceback = p_traceback, error_at = clock_timestamp(), updated_at = clock_timestamp()
    where k.consumer = p_consumer and k.part = p_part
      and exists (
        select from {schema}.share s
        where s.consumer = p_consumer and s.part = p_part and s.node = p_node and s.epoch = p_epoch);
    return found;
end $howdah$;
