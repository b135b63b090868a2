-- 0003: the event log and its consumers.

-- ================================================================ events

create table {schema}.event (
    position       bigint generated always as identity primary key,       -- rises, with gaps; CACHE must stay 1
    at             timestamptz not null default clock_timestamp(),
    version        bigint not null,                                       -- in its stream: 1, 2, 3, …
    schema_version int not null default 1,
    stream_type    text not null,
    stream_id      text not null,
    type           text not null,
    data           json not null,
    meta           json,
    correlation    text,
    causation      text,
    trace          text,
    constraint event_stream unique (stream_type, stream_id, version),
    constraint event_sane check (
        version > 0 and schema_version > 0 and length(type) between 1 and 100
        and length(stream_type) between 1 and 100 and strpos(stream_type, '-') = 0 and length(stream_id) between 1 and 300)
);

create sequence {schema}.log_sleep_marker minvalue 0 start 0;   -- a consumer sleeps until this millisecond, as in 0001
create sequence {schema}.log_exclusive minvalue 0 start 0;      -- 1: one append at a time

-- ================================================================ the run of a server

-- A crash and an asynchronous failover set the sequence of positions back: positions that readers have already seen are given
-- out again, to other events. What is stored cannot be ahead of the sequence, because both come from one write-ahead log; what
-- a process remembers can. So a frontier, and the position reached with it, belong to one run of one server.
--
-- The row of an unlogged table identifies that run: recovery empties the table, also after the crash of one backend and on a
-- standby that is promoted, where pg_postmaster_start_time() stays the same. The start time tells a copied data directory
-- apart.
create unlogged table {schema}.server_run (
    one        boolean primary key default true check (one),
    id         bigint not null,                                           -- random
    started_at timestamptz not null                                       -- of the postmaster
);

-- server_run: return the present run; null while none has been started.
create function {schema}.server_run() returns bigint stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select r.id from {schema}.server_run r where r.started_at = pg_postmaster_start_time()
$howdah$;

-- begin_run: return the present run, and start one if there is none; null while another transaction starts it.
--
-- For statements that are a transaction of their own: a transaction that starts the run and stays open would leave all other
-- sessions without one.
create function {schema}.begin_run() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $howdah$
declare
    run bigint;
begin
    if pg_is_in_recovery() then
        raise exception 'howdah: the log can be read only on the primary' using errcode = 'read_only_sql_transaction';
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

-- check_run: raise HD412 unless `run` is the present run.
--
-- To read in another run than that of the frontier could find no rows, which would mean that there are no events.
create function {schema}.check_run(run bigint) returns boolean stable
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if pg_is_in_recovery() then
        raise exception 'howdah: the log can be read only on the primary' using errcode = 'read_only_sql_transaction';
    elsif run is null or run is distinct from {schema}.server_run() then
        raise exception 'howdah: the server was restarted or replaced' using errcode = 'HD412';
    end if;
    return true;
end $howdah$;

-- log_identity: identify the log, for external readers that remember a position.
-- out: system     the database cluster
--      timeline   rises with every promotion and restore
--      run        changes with every start, crash and promotion; null while no node has read the log
create function {schema}.log_identity(out system bigint, out timeline int, out run bigint) stable
language sql security definer set search_path = pg_catalog, pg_temp as $howdah$
    select c.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, {schema}.server_run()
    from pg_control_system() c
$howdah$;

-- ================================================================ append and read

-- log_channel: return the notification channel of this schema for the log.
create function {schema}.log_channel() returns text immutable parallel safe
language sql as $howdah$ select 'howdah_log_' || substr(md5({'schema'}), 1, 16) $howdah$;

-- gate: before an insert into `event`, announce that this transaction may still commit positions above k.
--
-- Events may commit out of order of their positions, so readers stop at a frontier. Before a transaction draws its first
-- position it takes a shared advisory lock that says "I may still commit positions above k", where k is the value of the
-- sequence at that moment. The key is (oid of the table, low half of k); beyond 2^32 a second lock (oid of the sequence, high
-- half) makes it exact. The low half comes first, so a gate of which only one lock is taken reads too low, never too high.
--
-- It is a trigger, so that no writer can bypass it. It runs once per transaction: this is remembered in a setting that is
-- rolled back together with the lock when a savepoint is. The lock comes before the look at the marker: a sleeping consumer
-- sets the marker and then reads the locks, so one of the two sees the other. It reads the sequences with the rights of their
-- owner: from PostgreSQL 17 on, a role without rights gets null, and would lock too low.
--
-- A transaction that sets howdah.notify to off sends no notification, so that it can be prepared for a two-phase commit.
-- Sleeping consumers see its lock and poll at short intervals until it has ended.
create function {schema}.gate() returns trigger
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
    if coalesce(current_setting('howdah.notify', true), '') not in ('off', 'false', 'no', '0')
       and pg_sequence_last_value({'schema.log_sleep_marker'}::regclass) > (extract(epoch from clock_timestamp()) * 1000)::bigint then
        perform pg_notify({schema}.log_channel(), '');
    end if;
    return null;
end $howdah$;
create trigger gate before insert on {schema}.event for each statement execute function {schema}.gate();
-- Also in sessions that set session_replication_role to replica, as restores and replication tools do.
alter table {schema}.event enable always trigger gate;

-- reject_update: reject updates of events: the log is append-only. TRUNCATE stays possible, to start over.
create function {schema}.reject_update() returns trigger
language plpgsql as $howdah$
begin
    raise exception 'howdah: the event log is append-only' using errcode = 'restrict_violation';
end $howdah$;
create trigger append_only before update on {schema}.event for each statement execute function {schema}.reject_update();

-- frontier: return how far the log can be read without skipping an event that commits later.
-- in:  sleep_ms   set the sleep marker first, as a consumer must that is about to sleep; 0: do not
-- out: head       the newest position drawn
--      safe       events up to this position can be read
--      held       whether an open transaction holds the frontier back
--
-- Read the head first and the locks second; the caller reads the events third, in a new statement. An append that drew a
-- position up to head took its lock before head was read; if the lock is gone in the second step, its commit is visible to
-- the third. All three in one statement, or with one snapshot, would lose events.
create function {schema}.frontier(sleep_ms int default 0, out head bigint, out safe bigint, out held boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $howdah$
declare
    until  bigint;
    lowest bigint;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'howdah: the frontier needs READ COMMITTED' using errcode = 'active_sql_transaction';
    elsif pg_is_in_recovery() then                                       -- with this code, clients drop a connection to a demoted server
        raise exception 'howdah: the frontier needs the primary' using errcode = 'read_only_sql_transaction';
    end if;
    if sleep_ms > 0 then
        until := (extract(epoch from clock_timestamp()) * 1000)::bigint + sleep_ms;
        if coalesce(pg_sequence_last_value({'schema.log_sleep_marker'}::regclass), 0) < until - sleep_ms / 2 then
            perform setval({'schema.log_sleep_marker'}::regclass, until);
        end if;
    end if;
    head := coalesce(pg_sequence_last_value({'schema.event_position_seq'}::regclass), 0);
    select min((coalesce(t.hi, 0) << 32) + coalesce(t.lo, 0)) into lowest from (
        select min(l.objid::bigint) filter (where l.classid = {'schema.event'}::regclass::oid) as lo,
            min(l.objid::bigint) filter (where l.classid = {'schema.event_position_seq'}::regclass::oid) as hi
        from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock'
          and l.classid in ({'schema.event'}::regclass::oid, {'schema.event_position_seq'}::regclass::oid)
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
        group by l.virtualtransaction) t;
    held := lowest is not null;
    safe := least(head, lowest);
end $howdah$;

-- append: append events to a stream, from any language, in any transaction:
--   select howdah.append('Order-17', '[{"type": "OrderPlaced", "data": {"total": 5}}]')
-- in:  stream       Type-id
--      events       an array of objects with type and data, and optionally version (of the schema, default 1) and meta
--      expect       null: any version; 0: a new stream; n: exactly version n (else HD409)
--      correlation, causation, trace
-- out: version, position   of the last event
--
-- The transaction that inserts version + 1 owns the stream until it commits, and all others wait at that insert. So versions
-- and positions of a stream rise together.
create function {schema}.append(
    stream text, events json, expect bigint default null, correlation text default null,
    causation text default null, trace text default null,
    out version bigint, out "position" bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
#variable_conflict use_column
declare
    dash  constant int := strpos(stream, '-');
    kind  constant text := left(stream, dash - 1);
    name  constant text := substr(stream, dash + 1);
    last  bigint;
    count int;
begin
    if dash is null or dash < 2 or dash = length(stream) or length(kind) > 100 or length(name) > 300 or stream ~ '[[:cntrl:]]' then
        raise exception 'howdah: a stream is named Type-id, with up to 100 and 300 characters, got %', coalesce(quote_literal(left(stream, 420)), 'null')
            using errcode = 'invalid_parameter_value';
    elsif json_typeof(events) = 'object' then
        events := json_build_array(events);
    elsif json_typeof(events) is distinct from 'array' then
        raise exception 'howdah: events must be a JSON array of objects with type and data' using errcode = 'invalid_parameter_value';
    end if;
    count := json_array_length(events);
    if count = 0 then
        raise exception 'howdah: no events were given to append to stream %', stream using errcode = 'HD204';
    elsif exists (
        select from json_array_elements(events) n(event)
        where json_typeof(n.event -> 'meta') not in ('object', 'null') or n.event ->> 'type' ~ '[[:cntrl:]]') then
        raise exception 'howdah: meta of an event must be an object, and its type must have no control characters'
            using errcode = 'invalid_parameter_value';
    end if;
    loop
        select e.version into last from {schema}.event e
        where e.stream_type = kind and e.stream_id = name order by e.version desc limit 1;
        last := coalesce(last, 0);
        if last <> expect then
            raise exception 'howdah: stream % is at version %, not %', stream, last, expect using errcode = 'HD409';
        end if;
        insert into {schema}.event as e (stream_type, stream_id, version, type, schema_version, data, meta, correlation, causation, trace)
        select kind, name, last + 1, n.type, coalesce(n.version, 1), coalesce(n.data, '{}'), n.meta, append.correlation, append.causation, append.trace
        from json_to_record(events -> 0) as n(type text, version int, data json, meta json)
        on conflict on constraint event_stream do nothing
        returning e.position into append.position;
        exit when append.position is not null;
        if expect is not null then
            raise exception 'howdah: stream % moved past version %', stream, expect using errcode = 'HD409';
        end if;
    end loop;
    if count > 1 then
        with made as (
            insert into {schema}.event as e (stream_type, stream_id, version, type, schema_version, data, meta, correlation, causation, trace)
            select kind, name, last + n.place, n.type, coalesce(n.version, 1), coalesce(n.data, '{}'), n.meta, append.correlation, append.causation, append.trace
            from rows from (json_to_recordset(events) as (type text, version int, data json, meta json))
                with ordinality as n(type, version, data, meta, place)
            where n.place > 1
            order by n.place
            returning e.position
        )
        select max(m.position) into append.position from made m;
    end if;
    append.version := last + count;
end $howdah$;

-- ================================================================ consumers

-- Declared settings of a consumer, the same on every node.
create table {schema}.consumer (
    name         text primary key,
    partitions   int not null check (partitions between 1 and 1000),
    stream_types text[],                                                  -- null: all
    types        text[],                                                  -- null: all
    upto         bigint,                                                  -- no partition goes beyond, while their number changes
    paused       boolean not null default false,
    paused_at    timestamptz,
    paused_by    text,
    created_at   timestamptz not null default now(),
    digest       text                                                     -- of the current declaration
);

-- partition_of: return the partition of a stream. All events of a stream are in one partition.
create function {schema}.partition_of(stream_type text, stream_id text, partitions int) returns int immutable parallel safe
language sql as $howdah$
    select ((hashtextextended(stream_type || '-' || stream_id, 0) & 9223372036854775807) % partitions)::int
$howdah$;

-- next_epoch: return the next epoch of a partition: larger, with random low bits.
--
-- A standby that is promoted continues from an older epoch, and a plain counter would reach the one that the old primary gave
-- to the same node.
create function {schema}.next_epoch(last bigint) returns bigint
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select (((last >> 24) + 1) << 24) + ('x' || left(md5(gen_random_uuid()::text), 6))::bit(24)::int
$howdah$;

-- `consumer_partition` says which node owns a partition, and is written by the leader. `checkpoint` says how far the partition
-- has got, and is written by its owner. They are two tables, and the owner never locks the first one, so the leader never
-- waits for a running batch and no consumer waits for another.
create table {schema}.consumer_partition (
    consumer    text not null references {schema}.consumer on delete cascade,
    part        int not null,
    node        int,
    epoch       bigint not null default {schema}.next_epoch(0),           -- rises with every change: the fencing token
    assigned_at timestamptz,
    primary key (consumer, part)
) with (fillfactor = 50);

create table {schema}.checkpoint (
    consumer       text not null references {schema}.consumer on delete cascade,
    part           int not null,
    position       bigint not null,
    handled        bigint not null default 0,
    rate           float8 not null default 0,                             -- events per second, as measured by the owner
    failures       int not null default 0,
    halted         boolean not null default false,
    error_position bigint,
    error          text,
    message        text,
    traceback      text,
    error_at       timestamptz,
    updated_at     timestamptz not null default now(),
    primary key (consumer, part)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Events set aside because their consumer failed on them.
create table {schema}.parked (
    consumer  text not null references {schema}.consumer on delete cascade,
    position  bigint not null,
    part      int not null,
    error     text not null,
    message   text not null,
    traceback text not null,
    failures  int not null,
    parked_at timestamptz not null default now(),
    wanted_at timestamptz,                                                -- a retry was requested
    primary key (consumer, position)
);

-- The node that assigns partitions. One row.
create table {schema}.leader (
    one        boolean primary key default true check (one),
    node       int,
    since      timestamptz,
    expires_at timestamptz
);
insert into {schema}.leader default values;

-- fault: record that a consumer failed on an event.
-- in:  p_consumer, p_part, p_node, p_epoch   the partition, which must still be the node's
--      p_failures, p_halted, p_position, p_error, p_message, p_traceback   what is recorded
-- out: whether the partition was still the node's
--
-- Two statements: lock, then read. The consumer may be moved at this very moment; a single statement that waited for that
-- would not see that the partition belongs to another node, and would halt it.
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
        select from {schema}.consumer_partition s
        where s.consumer = p_consumer and s.part = p_part and s.node = p_node and s.epoch = p_epoch);
    return found;
end $howdah$;

-- reshape: change the number of partitions. All partitions stop at one common position, then they are made anew.
-- in:  p_name, p_partitions
-- out: whether it is done; the leader calls it until it is
--
-- While a partition is halted or retrying, the others do not wait for it.
create function {schema}.reshape(p_name text, p_partitions int) returns boolean
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
    if this.partitions = p_partitions then                               -- the nodes want the present number again
        update {schema}.consumer c set upto = null where c.name = p_name;
        update {schema}.consumer_partition s set epoch = s.epoch + 1 where s.consumer = p_name;
        return true;
    elsif lowest <> common or stuck then
        common := case when not stuck then common end;
        if this.upto is distinct from common then
            update {schema}.consumer c set upto = common where c.name = p_name;
            update {schema}.consumer_partition s set epoch = s.epoch + 1 where s.consumer = p_name;
        end if;
        return false;
    end if;
    select {schema}.next_epoch(max(s.epoch)) into fence from {schema}.consumer_partition s where s.consumer = p_name;
    select sum(k.handled) into seen from {schema}.checkpoint k where k.consumer = p_name;
    delete from {schema}.consumer_partition s where s.consumer = p_name;
    delete from {schema}.checkpoint k where k.consumer = p_name;
    update {schema}.consumer c set partitions = p_partitions, upto = null where c.name = p_name;
    insert into {schema}.consumer_partition (consumer, part, epoch)
    select p_name, i, fence from generate_series(0, p_partitions - 1) i;
    insert into {schema}.checkpoint (consumer, part, position, handled)
    select p_name, i, common, case when i = 0 then seen else 0 end from generate_series(0, p_partitions - 1) i;
    update {schema}.parked p set part = {schema}.partition_of(e.stream_type, e.stream_id, p_partitions)
    from {schema}.event e where p.consumer = p_name and e.position = p.position;
    return true;
end $howdah$;

-- ================================================================ declarations

-- During a rolling release, nodes declare one consumer with different filters. One declaration is the current one, and only
-- nodes that declared it own partitions of the consumer; otherwise a node of the old code would skip events the new code wants.
create table {schema}.declaration (
    consumer     text not null references {schema}.consumer on delete cascade,
    digest       text not null,
    stream_types text[],
    types        text[],
    declared_at  timestamptz not null default clock_timestamp(),          -- first, since nodes have it
    seen_at      timestamptz not null default clock_timestamp(),          -- last, with a live node
    -- When the leader first found no live node with it; null: it found one. The minute after which the current declaration gives
    -- way counts from here and not from `seen_at`: during an outage of the server no node is seen, and the node that
    -- returns first must not take the consumer from nodes that return a second later.
    unseen_at    timestamptz,
    -- Another declaration took over, until a node starts with this one: a process of a release that was rolled back may have
    -- been frozen meanwhile, and must not take the consumer back when it wakes up.
    withdrawn    boolean not null default false,
    primary key (consumer, digest)
);

-- filter_digest: return a digest of the filters of a consumer, independent of the order of their elements.
create function {schema}.filter_digest(stream_types text[], types text[]) returns text immutable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select md5(
        coalesce((select string_agg(distinct quote_literal(x) collate "C", ',' order by quote_literal(x) collate "C") from unnest(stream_types) x), '*')
        || ' ' ||
        coalesce((select string_agg(distinct quote_literal(x) collate "C", ',' order by quote_literal(x) collate "C") from unnest(types) x), '*'))
$howdah$;

-- declares_other_filter: return whether a node is known to have declared the consumer with another filter than the current one.
create function {schema}.declares_other_filter(p_node int, p_consumer text) returns boolean stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select coalesce((
        select n.declared ->> p_consumer is distinct from c.digest
        from {schema}.consumer c
        join {schema}.node n on n.id = p_node
        where c.name = p_consumer and c.digest is not null), false)
$howdah$;

-- declarers: return the nodes that have a consumer, with the digest each declared.
-- in:  p_dead      seconds without a heartbeat after which a node is dead
--      p_offline   include nodes that are offline
-- out: node, consumer, digest
create function {schema}.declarers(p_dead float8, p_offline boolean default false)
returns table (node int, consumer text, digest text) stable
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select n.id, k.name, n.declared ->> k.name
    from {schema}.node n, lateral json_object_keys(n.consumers) k(name)
    where (p_offline or n.state <> 'offline') and n.consumers is not null
      and n.beat_at > clock_timestamp() - p_dead * interval '1 second'
$howdah$;

-- set_current_declaration: make a declaration the current one.
--
-- The epoch rises for all partitions, and owners that declared something else lose theirs: commits of batches in progress are
-- rejected.
create function {schema}.set_current_declaration(p_consumer text, p_digest text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    update {schema}.consumer c set digest = d.digest, stream_types = d.stream_types, types = d.types
    from {schema}.declaration d
    where c.name = p_consumer and d.consumer = p_consumer and d.digest = p_digest;
    update {schema}.consumer_partition s
    set epoch = s.epoch + 1, node = case when not {schema}.declares_other_filter(s.node, p_consumer) then s.node end
    where s.consumer = p_consumer;
    perform pg_notify({schema}.log_channel(), 'assign');
end $howdah$;

-- next_declared_at: return the time of a new declaration, later than all others of the consumer.
--
-- The clock may have gone back, as in a failover to a host whose clock is behind.
create function {schema}.next_declared_at(p_consumer text) returns timestamptz
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select greatest(clock_timestamp(), max(d.declared_at) + interval '1 microsecond')
    from {schema}.declaration d where d.consumer = p_consumer
$howdah$;

-- declare_scope: declare a consumer when a node starts.
-- in:  p_name, p_partitions, p_stream_types, p_types   the declaration
--      p_start     position at which a new consumer begins; null: at the frontier
-- out: the digest of the filter
--
-- The declaration becomes the current one if it is newer. An old node that is started again during a release declares nothing
-- new, so the new declaration stays. A node that starts with an older declaration takes the consumer only if every node
-- with the current one stopped cleanly, or has been silent for ten minutes. Nodes that are silent for a shorter time may be
-- cut off: they return after an outage, perhaps a second later, and the older declaration could skip events meanwhile.
create function {schema}.declare_scope(
    p_name text, p_partitions int, p_stream_types text[], p_types text[], p_start bigint)
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
        insert into {schema}.consumer_partition (consumer, part) select p_name, i from generate_series(0, p_partitions - 1) i;
        insert into {schema}.checkpoint (consumer, part, position)
        select p_name, i, coalesce(p_start, f.safe) from generate_series(0, p_partitions - 1) i, {schema}.frontier() f;
    end if;
    select c.digest into current from {schema}.consumer c where c.name = p_name for no key update;
    insert into {schema}.declaration as d (consumer, digest, stream_types, types, declared_at)
    values (p_name, mine, p_stream_types, p_types, {schema}.next_declared_at(p_name))
    on conflict (consumer, digest) do update
    set seen_at = clock_timestamp(), unseen_at = null, withdrawn = false,
        declared_at = case when d.seen_at < clock_timestamp() - interval '10 minutes' then excluded.declared_at else d.declared_at end;
    if current is distinct from mine then
        select m.declared_at > c.declared_at into newer
        from {schema}.declaration m
        left join {schema}.declaration c on c.consumer = p_name and c.digest = current
        where m.consumer = p_name and m.digest = mine;
        if newer is not false or not exists (
            select from {schema}.declarers(600, true) o where o.consumer = p_name and o.digest = current) then
            perform {schema}.set_current_declaration(p_name, mine);
        end if;
    end if;
    delete from {schema}.declaration d using {schema}.consumer c
    where c.name = p_name and d.consumer = p_name and d.digest <> c.digest and d.seen_at < clock_timestamp() - interval '30 days';
    return mine;
end $howdah$;

-- replace_declarations: decide which declarations are current. Called by the leader at intervals.
-- in:  p_dead           as in declarers
-- out: consumer, node   live nodes that own no partition of a consumer because they declared it otherwise
--
-- The current declaration gives way to the newest one that live nodes have
-- - when that one is newer and not withdrawn: its nodes were unreachable when a node started with the older one;
-- - when leaders found no live node with the current one for a minute: a release was rolled back. Not earlier, because a node
--   that is being restarted has it, too.
create function {schema}.replace_declarations(p_dead float8) returns table (consumer text, node int)
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $howdah$
#variable_conflict use_column
declare
    given_way record;
begin
    with live as materialized (
        select distinct o.consumer, o.digest from {schema}.declarers(p_dead) o
    )
    update {schema}.declaration d
    set seen_at = case when s.seen then clock_timestamp() else d.seen_at end,
        unseen_at = case when not s.seen then clock_timestamp() end
    from (
        select a.consumer, a.digest, exists (
            select from live o where o.consumer = a.consumer and o.digest = a.digest) as seen
        from {schema}.declaration a
    ) s
    where s.consumer = d.consumer and s.digest = d.digest
      and case when s.seen then d.unseen_at is not null or abs(extract(epoch from clock_timestamp() - d.seen_at)) > 10
               else d.unseen_at is null or d.unseen_at > clock_timestamp() + interval '10 seconds' end;
    for given_way in
        select c.name, c.digest as before, n.digest, n.declared_at < k.declared_at or n.withdrawn as older
        from {schema}.consumer c
        join {schema}.declaration k on k.consumer = c.name and k.digest = c.digest
        cross join lateral (
            select d.digest, d.declared_at, d.withdrawn from {schema}.declaration d
            where d.consumer = c.name and d.unseen_at is null
            order by d.withdrawn, d.declared_at desc limit 1) n
        where n.digest <> c.digest
          and (k.unseen_at < clock_timestamp() - interval '1 minute' or (n.declared_at > k.declared_at and not n.withdrawn))
        for no key update of c
    loop
        update {schema}.declaration d set withdrawn = given_way.older and d.digest = given_way.before
        where d.consumer = given_way.name and d.digest in (given_way.before, given_way.digest);
        perform {schema}.set_current_declaration(given_way.name, given_way.digest);
    end loop;
    return query
    select o.consumer, o.node from {schema}.declarers(p_dead) o
    where {schema}.declares_other_filter(o.node, o.consumer)
    order by 1, 2;
end $howdah$;

-- guard_assignment: keep assignments consistent, whichever code writes them.
--
-- Every change of the epoch draws a new random one. A partition given to a node that declared the consumer otherwise stays
-- where it is, or goes to the node with the fewest partitions that may have it: the declaration may have changed since the
-- leader read it.
create function {schema}.guard_assignment() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if new.node is distinct from old.node and {schema}.declares_other_filter(new.node, new.consumer) then
        new.node := (
            select n.id from {schema}.node n
            where n.state in ('idle', 'busy') and n.beat_at > clock_timestamp() - interval '30 seconds'
              and n.consumers::jsonb ? new.consumer and not {schema}.declares_other_filter(n.id, new.consumer)
            order by n.id is distinct from old.node, (select count(*) from {schema}.consumer_partition s where s.node = n.id), n.id
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
create trigger guard before update on {schema}.consumer_partition for each row execute function {schema}.guard_assignment();
