-- 0015: what a server showed belongs to that run of that server, and consumers whose declaration changes.

-- ---------------------------------------------------------------- the run of a server

-- A crash and an asynchronous failover set the sequence of positions back: positions that readers have seen given out are
-- given out again, to other events. What is stored cannot be ahead of the sequence, since both come from one write-ahead
-- log; what a process remembers can. So a frontier, and the position reached with it, belong to one run of one server.
-- The row of an unlogged table is that run: recovery empties it, after a crash of one backend and on a standby that is
-- promoted as well, where pg_postmaster_start_time() stays the same. The start time tells a copied data folder apart.
create unlogged table {schema}.server_run (
    one        boolean primary key default true check (one),
    id         bigint not null,                                           -- random
    started_at timestamptz not null                                       -- of the postmaster
);

-- The run; null while nobody has begun it.
create function {schema}.server_run() returns bigint stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select r.id from {schema}.server_run r where r.started_at = pg_postmaster_start_time()
$howdah$;

-- The run, begun now if need be; null while another transaction begins it. For statements that are their own transaction:
-- a transaction that begins the run and stays open leaves all others without one.
create function {schema}.begin_run() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $howdah$
declare
    run bigint;
begin
    if pg_is_in_recovery() then
        raise exception 'howdah: the log is read on the primary' using errcode = 'read_only_sql_transaction';
    end if;
    run := {schema}.server_run();
    if run is null and pg_try_advisory_xact_lock({'schema.server_run'}::regclass::oid::int, 0) then
        run := {schema}.server_run();
        if run is null then
            run := ('x' || left(md5(gen_random_uuid()::text), 13))::bit(52)::bigint;
            insert into {schema}.server_run (id, started_at) values (run, pg_postmaster_start_time())
            on conflict (one) do update set id = excluded.id, started_at = excluded.started_at;
        end if;
    end if;
    return run;
end $howdah$;

-- Refuses to read in another run than that of the frontier: no rows would mean that there are no events.
create function {schema}.check_run(run bigint) returns boolean stable
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if pg_is_in_recovery() then
        raise exception 'howdah: the log is read on the primary' using errcode = 'read_only_sql_transaction';
    elsif run is null or run is distinct from {schema}.server_run() then
        raise exception 'howdah: the server was restarted or replaced' using errcode = 'HD412';
    end if;
    return true;
end $howdah$;

-- Which log this is, for readers outside that remember a position. system: the cluster; timeline: rises with every
-- promotion and restore; run: changes with every start, crash and promotion, null while no node has looked at the log.
create function {schema}.log_identity(out system bigint, out timeline int, out run bigint) stable
language sql security definer set search_path = pg_catalog, pg_temp as $howdah$
    select c.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, {schema}.server_run()
    from pg_control_system() c
$howdah$;

-- ---------------------------------------------------------------- epochs

-- The next epoch of a share: larger, with random low bits. A standby that is promoted counts on from an older epoch, and a
-- plain count would reach the one that the old primary gave to the same node.
create function {schema}.next_epoch(last bigint) returns bigint
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select (((last >> 24) + 1) << 24) + ('x' || left(md5(gen_random_uuid()::text), 6))::bit(24)::int
$howdah$;
alter table {schema}.share alter column epoch set default {schema}.next_epoch(0);

-- ---------------------------------------------------------------- what nodes declare

-- During a rolling release nodes declare one consumer with different filters. One declaration is the current one, and only
-- nodes that declared it own the consumer; else a node of the old code would pass over the events the new code wants.
alter table {schema}.consumer add column digest text;                     -- of the current declaration
alter table {schema}.node add column declared json;                       -- name to digest; null: a node of the release before
create table {schema}.declaration (
    consumer     text not null references {schema}.consumer on delete cascade,
    digest       text not null,
    stream_types text[],
    types        text[],
    unnamed      boolean not null default false,                          -- nodes of the release before declared it
    declared_at  timestamptz not null default clock_timestamp(),          -- first, since nodes have it
    seen_at      timestamptz not null default clock_timestamp(),          -- last, with a live node
    primary key (consumer, digest)
);

create function {schema}.filter_digest(stream_types text[], types text[]) returns text immutable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select md5(
        coalesce((select string_agg(distinct quote_literal(x) collate "C", ',' order by quote_literal(x) collate "C") from unnest(stream_types) x), '*')
        || ' ' ||
        coalesce((select string_agg(distinct quote_literal(x) collate "C", ',' order by quote_literal(x) collate "C") from unnest(types) x), '*'))
$howdah$;

update {schema}.consumer c set digest = {schema}.filter_digest(c.stream_types, c.types);
insert into {schema}.declaration (consumer, digest, stream_types, types, unnamed)
select c.name, c.digest, c.stream_types, c.types, true from {schema}.consumer c;

-- Whether a node is known to have declared the consumer with another filter than the current one.
create function {schema}.barred(p_node int, p_consumer text) returns boolean stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select coalesce((
        select case when n.declared is null then not coalesce(d.unnamed, false)
                    else n.declared ->> p_consumer is distinct from c.digest end
        from {schema}.consumer c
        join {schema}.node n on n.id = p_node
        left join {schema}.declaration d on d.consumer = c.name and d.digest = c.digest
        where c.name = p_consumer and c.digest is not null), false)
$howdah$;

-- The live nodes that have a consumer, with the digest each declared; nodes of the release before do not say theirs.
create function {schema}.declarers(p_dead float8, p_offline boolean default false)
returns table (node int, consumer text, digest text) stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select n.id, k.name, n.declared ->> k.name
    from {schema}.node n, lateral json_object_keys(n.consumers) k(name)
    where (p_offline or n.state <> 'offline') and n.consumers is not null
      and n.beat_at > clock_timestamp() - p_dead * interval '1 second'
$howdah$;

-- Makes a declaration the current one. The epoch rises for all, and owners that declared something else lose their shares:
-- what they have under way is refused.
create function {schema}.adopt(p_consumer text, p_digest text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    update {schema}.consumer c set digest = d.digest, stream_types = d.stream_types, types = d.types
    from {schema}.declaration d
    where c.name = p_consumer and d.consumer = p_consumer and d.digest = p_digest;
    update {schema}.share s
    set epoch = s.epoch + 1, node = case when not {schema}.barred(s.node, p_consumer) then s.node end
    where s.consumer = p_consumer;
    perform pg_notify({schema}.log_channel(), 'assign');
end $howdah$;

-- A node starts and declares a consumer; returns the digest of its filter. A new consumer begins at `start`, or at the
-- frontier when that is null. The declaration becomes the current one if it is newer, or if no live node has the current
-- one. An old node that is started again during a release declares nothing new, so the new declaration stays.
create function {schema}.declare_scope(
    p_name text, p_partitions int, p_stream_types text[], p_types text[], p_start bigint, p_unnamed boolean default false)
returns text language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    mine    constant text := {schema}.filter_digest(p_stream_types, p_types);
    current text;
    newer   boolean;
begin
    insert into {schema}.consumer (name, partitions, stream_types, types, digest)
    values (p_name, p_partitions, p_stream_types, p_types, mine)
    on conflict (name) do nothing;
    if found then
        insert into {schema}.share (consumer, part) select p_name, i from generate_series(0, p_partitions - 1) i;
        insert into {schema}.checkpoint (consumer, part, position)
        select p_name, i, coalesce(p_start, f.safe) from generate_series(0, p_partitions - 1) i, {schema}.frontier() f;
    end if;
    select c.digest into current from {schema}.consumer c where c.name = p_name for no key update;
    insert into {schema}.declaration as d (consumer, digest, stream_types, types, unnamed)
    values (p_name, mine, p_stream_types, p_types, p_unnamed)
    on conflict (consumer, digest) do update
    set seen_at = clock_timestamp(), unnamed = d.unnamed or excluded.unnamed,
        declared_at = case when d.seen_at < clock_timestamp() - interval '10 minutes' then clock_timestamp() else d.declared_at end;
    if current is distinct from mine then
        select m.declared_at > c.declared_at into newer
        from {schema}.declaration m
        left join {schema}.declaration c on c.consumer = p_name and c.digest = current
        where m.consumer = p_name and m.digest = mine;
        if newer is not false or not exists (
            select from {schema}.declarers(30) o
            where o.consumer = p_name and (o.digest = current or (o.digest is null and not {schema}.barred(o.node, p_name)))) then
            perform {schema}.adopt(p_name, mine);
        end if;
    end if;
    delete from {schema}.declaration d using {schema}.consumer c
    where c.name = p_name and d.consumer = p_name and d.digest <> c.digest and d.seen_at < clock_timestamp() - interval '30 days';
    return mine;
end $howdah$;

-- As nodes of the release before declare: they do not say what they are, so all of them count as having declared it.
create or replace function {schema}.declare_consumer(
    p_name text, p_partitions int, p_stream_types text[], p_types text[], p_start bigint)
returns void language sql set search_path = pg_catalog, pg_temp as $howdah$
    select {schema}.declare_scope(p_name, p_partitions, p_stream_types, p_types, p_start, true)
$howdah$;

-- Called by the leader now and then. A declaration that no live node has had for a minute gives way to the newest one that
-- live nodes have: a release was rolled back. Not earlier, since a node that is just started again has it, too. Returns
-- the live nodes that own no part of a consumer because they declared it otherwise.
create function {schema}.judge_declarations(p_dead float8) returns table (consumer text, node int)
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $howdah$
#variable_conflict use_column
declare
    left_alone record;
begin
    update {schema}.declaration d set seen_at = clock_timestamp()
    where d.seen_at < clock_timestamp() - interval '10 seconds'
      and exists (
        select from {schema}.declarers(p_dead) o
        where o.consumer = d.consumer and (o.digest = d.digest or (o.digest is null and d.unnamed)));
    for left_alone in
        select c.name, (
            select d.digest from {schema}.declaration d
            where d.consumer = c.name and d.digest <> c.digest
              and exists (
                select from {schema}.declarers(p_dead) o
                where o.consumer = c.name and (o.digest = d.digest or (o.digest is null and d.unnamed)))
            order by d.declared_at desc limit 1) as digest
        from {schema}.consumer c
        join {schema}.declaration k on k.consumer = c.name and k.digest = c.digest
        where k.seen_at < clock_timestamp() - interval '1 minute'
        for no key update of c
    loop
        if left_alone.digest is not null then
            perform {schema}.adopt(left_alone.name, left_alone.digest);
        end if;
    end loop;
    return query
    select o.consumer, o.node from {schema}.declarers(p_dead) o where {schema}.barred(o.node, o.consumer) order by 1, 2;
end $howdah$;

-- Keeps shares as they must be, whoever writes them: a leader of the release before knows neither random epochs nor
-- declarations. A share that it gives to a barred node stays where it is, or goes to the node with the fewest shares that
-- may have it.
create function {schema}.guard_share() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if new.node is distinct from old.node and {schema}.barred(new.node, new.consumer) then
        new.node := (
            select n.id from {schema}.node n
            where n.state in ('idle', 'busy') and n.beat_at > clock_timestamp() - interval '30 seconds'
              and n.consumers::jsonb ? new.consumer and not {schema}.barred(n.id, new.consumer)
            order by n.id is distinct from old.node, (select count(*) from {schema}.share s where s.node = n.id), n.id
            limit 1);
        if new.node is not distinct from old.node then
            return null;
        end if;
    end if;
    if new.epoch is distinct from old.epoch then
        new.epoch := {schema}.next_epoch(old.epoch);
    end if;
    return new;
end $howdah$;
create trigger guard before update on {schema}.share for each row execute function {schema}.guard_share();

-- ---------------------------------------------------------------- partitions

-- As in 0002, but a part that is retrying does not make the others wait for it either.
create or replace function {schema}.reshape(p_name text, p_partitions int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $howdah$
declare
    this   {schema}.consumer;
    lowest bigint;
    common bigint;
    stuck  boolean;
    fence  bigint;
    seen   bigint;
begin
    select * into this from {schema}.consumer c where c.name = p_name for update;
    if not found or (this.partitions = p_partitions and this.upto is null) then
        return true;
    end if;
    perform from {schema}.checkpoint k where k.consumer = p_name order by k.part for update;
    select min(k.position), max(k.position), bool_or(k.halted or k.failures > 0) into lowest, common, stuck
    from {schema}.checkpoint k where k.consumer = p_name;
    if this.partitions = p_partitions then                               -- the nodes changed their mind
        update {schema}.consumer c set upto = null where c.name = p_name;
        update {schema}.share s set epoch = s.epoch + 1 where s.consumer = p_name;
        return true;
    elsif lowest <> common or stuck then
        common := case when not stuck then common end;
        if this.upto is distinct from common then
            update {schema}.consumer c set upto = common where c.name = p_name;
            update {schema}.share s set epoch = s.epoch + 1 where s.consumer = p_name;
        end if;
        return false;
    end if;
    select {schema}.next_epoch(max(s.epoch)) into fence from {schema}.share s where s.consumer = p_name;
    select sum(k.handled) into seen from {schema}.checkpoint k where k.consumer = p_name;
    delete from {schema}.share s where s.consumer = p_name;
    delete from {schema}.checkpoint k where k.consumer = p_name;
    update {schema}.consumer c set partitions = p_partitions, upto = null where c.name = p_name;
    insert into {schema}.share (consumer, part, epoch) select p_name, i, fence from generate_series(0, p_partitions - 1) i;
    insert into {schema}.checkpoint (consumer, part, position, handled)
    select p_name, i, common, case when i = 0 then seen else 0 end from generate_series(0, p_partitions - 1) i;
    update {schema}.parked p set part = {schema}.part_of(e.stream_type, e.stream_id, p_partitions)
    from {schema}.event e where p.consumer = p_name and e.position = p.position;
    return true;
end $howdah$;

-- ---------------------------------------------------------------- the gate

-- As in 0002, but a transaction that sets howdah.notify to off sends no notification, so that it can be prepared for a
-- two-phase commit. Sleeping consumers see its lock and look again in short steps until it has ended.
create or replace function {schema}.gate() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $howdah$
declare
    flag constant text := 'howdah.gate_' || {'schema.event'}::regclass::oid::text;
    k    bigint;
begin
    if coalesce(current_setting(flag, true), '') <> '' then
        return null;
    end if;
    if pg_sequence_last_value({'schema.log_exclusive'}::regclass) = 1 then
        perform pg_advisory_xact_lock({'schema.log_exclusive'}::regclass::oid::int, 0);
    end if;
    k := coalesce(pg_sequence_last_value({'schema.event_position_seq'}::regclass), 0);
    perform pg_advisory_xact_lock_shared({'schema.event'}::regclass::oid::int, (k << 32 >> 32)::int);
    if k >> 32 > 0 then
        perform pg_advisory_xact_lock_shared({'schema.event_position_seq'}::regclass::oid::int, (k >> 32)::int);
    end if;
    perform set_config(flag, 'taken', true);
    if coalesce(current_setting('howdah.notify', true), '') <> 'off'
       and pg_sequence_last_value({'schema.log_sign'}::regclass) > (extract(epoch from clock_timestamp()) * 1000)::bigint then
        perform pg_notify({schema}.log_channel(), '');
    end if;
    return null;
end $howdah$;

-- Also for sessions that set session_replication_role to replica, as restores and replication tools do.
alter table {schema}.event enable always trigger gate;
