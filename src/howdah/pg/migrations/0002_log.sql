-- 0002: the event log and its consumers.

create table {schema}.event (
    position       bigint generated always as identity primary key,       -- rises, with holes; CACHE must stay 1
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

create sequence {schema}.log_sign minvalue 0 start 0;        -- somebody sleeps until this millisecond, as in the bell of 0001
create sequence {schema}.log_exclusive minvalue 0 start 0;   -- 1: one append at a time

-- What a consumer is: the same on every node.
create table {schema}.consumer (
    name         text primary key,
    partitions   int not null check (partitions between 1 and 1000),
    stream_types text[],                                                  -- null: all
    types        text[],                                                  -- null: all
    upto         bigint,                                                  -- nobody goes beyond, while partitions change
    paused       boolean not null default false,
    paused_at    timestamptz,
    paused_by    text,
    created_at   timestamptz not null default now()
);

-- Who consumes: written by the leader. How far it got: written by the owner. Two tables, and the owner never locks
-- the first, so the leader never waits for a running batch and no consumer waits for another.
create table {schema}.share (
    consumer    text not null references {schema}.consumer on delete cascade,
    part        int not null,
    node        int,
    epoch       bigint not null default 1,                                -- rises with every change: the fence
    assigned_at timestamptz,
    primary key (consumer, part)
) with (fillfactor = 50);

create table {schema}.checkpoint (
    consumer       text not null references {schema}.consumer on delete cascade,
    part           int not null,
    position       bigint not null,
    handled        bigint not null default 0,
    rate           float8 not null default 0,                             -- events a second, as its owner saw it
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
    wanted_at timestamptz,                                                -- to be tried again
    primary key (consumer, position)
);

create table {schema}.leader (
    one        boolean primary key default true check (one),
    node       int,
    since      timestamptz,
    expires_at timestamptz
);
insert into {schema}.leader default values;

alter table {schema}.node add column consumers json;                      -- name to partitions: what it can consume

-- ---------------------------------------------------------------- the gate

create function {schema}.log_channel() returns text immutable parallel safe
language sql as $howdah$ select 'howdah_log_' || substr(md5({'schema'}), 1, 16) $howdah$;

-- A later position can commit first, so readers stop at a frontier. Before a transaction draws its first position it
-- takes a shared lock that says "I may still commit positions above k", k being the sequence at that moment. The key
-- is (oid of the table, low half of k); beyond 2^32 a second lock (oid of the sequence, high half) makes it exact.
-- Low first, so a gate that is half taken reads too low, never too high.
--
-- It is a trigger, so whoever inserts is behind it; and once per transaction, remembered in a setting that falls
-- together with the lock when a savepoint is rolled back. The lock comes before the look at the sign: a sleeper hangs
-- the sign and then looks at the locks, so one of the two sees the other. It sees the sequences with the rights of their
-- owner: from PostgreSQL 17 on, whoever may not look is told null, and would lock too low.
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
    if pg_sequence_last_value({'schema.log_sign'}::regclass) > (extract(epoch from clock_timestamp()) * 1000)::bigint then
        perform pg_notify({schema}.log_channel(), '');
    end if;
    return null;
end $howdah$;

create trigger gate before insert on {schema}.event for each statement execute function {schema}.gate();

-- An event never changes. (Truncate stays possible, for those who start over.)
create function {schema}.refuse_change() returns trigger
language plpgsql as $howdah$
begin
    raise exception 'howdah: the event log is append-only' using errcode = 'restrict_violation';
end $howdah$;
create trigger append_only before update on {schema}.event for each statement execute function {schema}.refuse_change();

-- How far the log can be read: head first, locks second; the caller reads the events third, in a new statement. An
-- append that drew a position up to head locked before head was read; if its lock is gone by the second step, its
-- commit is visible to the third. One statement for all three, or one snapshot, loses events. `sleep_ms`: hang the sign
-- first, as whoever is about to wait must.
create function {schema}.frontier(sleep_ms int default 0, out head bigint, out safe bigint, out held boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $howdah$
declare
    until  bigint;
    lowest bigint;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'howdah: the frontier needs READ COMMITTED' using errcode = 'active_sql_transaction';
    elsif pg_is_in_recovery() then                                       -- so said, a connection to a demoted server is dropped
        raise exception 'howdah: the frontier needs the primary' using errcode = 'read_only_sql_transaction';
    end if;
    if sleep_ms > 0 then
        until := (extract(epoch from clock_timestamp()) * 1000)::bigint + sleep_ms;
        if coalesce(pg_sequence_last_value({'schema.log_sign'}::regclass), 0) < until - sleep_ms / 2 then
            perform setval({'schema.log_sign'}::regclass, until);
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

-- ---------------------------------------------------------------- append

-- From any language, in any transaction: select howdah.append('Order-17', '[{"type": "OrderPlaced", "data": {"total": 5}}]').
-- Each event may also say "version" (of its schema, 1 if left out) and "meta". expect: null any, 0 a new stream, n exactly n.
-- Whoever gets version + 1 owns the stream until commit and all others wait right there, so versions and positions of a
-- stream rise together.
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

-- ---------------------------------------------------------------- consumers

create function {schema}.part_of(stream_type text, stream_id text, partitions int) returns int immutable parallel safe
language sql as $howdah$
    select ((hashtextextended(stream_type || '-' || stream_id, 0) & 9223372036854775807) % partitions)::int
$howdah$;

-- A node starts and says what it can consume. A new consumer begins at `start`, or at the frontier when that is null.
create function {schema}.declare_consumer(p_name text, p_partitions int, p_stream_types text[], p_types text[], p_start bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    insert into {schema}.consumer (name, partitions, stream_types, types) values (p_name, p_partitions, p_stream_types, p_types)
    on conflict (name) do nothing;
    if found then
        insert into {schema}.share (consumer, part) select p_name, i from generate_series(0, p_partitions - 1) i;
        insert into {schema}.checkpoint (consumer, part, position)
        select p_name, i, coalesce(p_start, f.safe) from generate_series(0, p_partitions - 1) i, {schema}.frontier() f;
    else
        update {schema}.consumer c set stream_types = p_stream_types, types = p_types
        where c.name = p_name and (c.stream_types is distinct from p_stream_types or c.types is distinct from p_types);
    end if;
end $howdah$;

-- Change the number of partitions: everybody stops at one common position, then the shares are cut anew. Called by the
-- leader until it says true. While a part is halted the others are not made to wait for it.
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
    select min(k.position), max(k.position), bool_or(k.halted) into lowest, common, stuck
    from {schema}.checkpoint k where k.consumer = p_name;
    if this.partitions = p_partitions then                               -- somebody changed their mind
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
    select max(s.epoch) + 1 into fence from {schema}.share s where s.consumer = p_name;
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
