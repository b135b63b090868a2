-- 0021: which declaration counts: after an outage, when the clock of the server goes back, and for webhooks.

-- ---------------------------------------------------------------- consumers

-- When the leader first found no live node with the declaration that is the current one; null: it found one. The minute
-- after which a declaration gives way counts from here and not from `seen_at`: while the server is away nobody sees any
-- node, and after that the node that returns first must not take the consumer from nodes that return a second later.
-- A declaration that gave way is withdrawn until a node starts with it: a process of a release that was rolled back may
-- have been frozen meanwhile, and must not take the consumer back when it wakes up.
alter table {schema}.declaration
    add column unseen_at timestamptz,
    add column withdrawn boolean not null default false;

-- The moment of a new declaration, later than all others of the consumer although the clock may have gone back, as it
-- does in a failover to a host whose clock is behind.
create function {schema}.next_declared_at(p_consumer text) returns timestamptz
language sql set search_path = pg_catalog, pg_temp as $howdah$
    select greatest(clock_timestamp(), max(d.declared_at) + interval '1 microsecond')
    from {schema}.declaration d where d.consumer = p_consumer
$howdah$;

-- As in 0015, with the moment above. A node that starts with an older declaration takes the consumer only if every node with
-- the current one stopped cleanly, or has been silent for ten minutes. Nodes that are silent for a shorter time may be cut
-- off: they return after an outage, perhaps a second later, and the older declaration may skip events meanwhile.
create or replace function {schema}.declare_scope(
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
    insert into {schema}.declaration as d (consumer, digest, stream_types, types, unnamed, declared_at)
    values (p_name, mine, p_stream_types, p_types, p_unnamed, {schema}.next_declared_at(p_name))
    on conflict (consumer, digest) do update
    set seen_at = clock_timestamp(), unseen_at = null, withdrawn = false, unnamed = d.unnamed or excluded.unnamed,
        declared_at = case when d.seen_at < clock_timestamp() - interval '10 minutes' then excluded.declared_at else d.declared_at end;
    if current is distinct from mine then
        select m.declared_at > c.declared_at into newer
        from {schema}.declaration m
        left join {schema}.declaration c on c.consumer = p_name and c.digest = current
        where m.consumer = p_name and m.digest = mine;
        if newer is not false or not exists (
            select from {schema}.declarers(600, true) o
            where o.consumer = p_name and (o.digest = current or (o.digest is null and not {schema}.barred(o.node, p_name)))) then
            perform {schema}.adopt(p_name, mine);
        end if;
    end if;
    delete from {schema}.declaration d using {schema}.consumer c
    where c.name = p_name and d.consumer = p_name and d.digest <> c.digest and d.seen_at < clock_timestamp() - interval '30 days';
    return mine;
end $howdah$;

-- Called by the leader now and then. The current declaration gives way to the newest one that live nodes have
-- - when that one is newer and not withdrawn: the nodes of it were out of reach when a node started with the older one;
-- - when leaders found no live node with it for a minute: a release was rolled back. Not earlier, since a node that is
--   just started again has it, too.
-- Returns the live nodes that own no part of a consumer because they declared it otherwise.
create or replace function {schema}.judge_declarations(p_dead float8) returns table (consumer text, node int)
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
            select from live o where o.consumer = a.consumer and (o.digest = a.digest or (o.digest is null and a.unnamed))) as seen
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
        perform {schema}.adopt(given_way.name, given_way.digest);
    end loop;
    return query
    select o.consumer, o.node from {schema}.declarers(p_dead) o where {schema}.barred(o.node, o.consumer) order by 1, 2;
end $howdah$;

-- ---------------------------------------------------------------- schedules

-- As for consumers: another declaration took over since no node repeated this one, and it counts again when a node starts
-- with it.
alter table {schema}.schedule_declaration add column withdrawn boolean not null default false;

-- ---------------------------------------------------------------- webhooks

-- What nodes declare about a webhook: one row for each different declaration. Of those seen lately the one first declared
-- last is the current one, and `webhook` has it. Else nodes of two releases would overwrite each other once a minute, and
-- failures that only the new release wants to hear of would be left out for that long.
create table {schema}.webhook_declaration (
    name        text not null,
    declaration text not null,                              -- a hash of the columns that follow
    host        text not null,
    events      text[] not null,
    queues      text[],
    kinds       text[],
    stuck_after float8 not null,
    declared_at timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    primary key (name, declaration)
) with (fillfactor = 50);

alter table {schema}.webhook add column declaration text;  -- the current one; null: declared by the release before alone

-- A node declares a webhook, or repeats that it knows it. `p_since`: when its declaration was first declared, as this
-- function answered the first time; a process that was frozen for hours must not count as a new release. Null: the process
-- has just started. Nodes of a later declaration may be cut off at that moment, so it counts for longer then. Returns the
-- moment, and whether the current declaration is the caller's.
create function {schema}.declare_webhook(
    p_name text, p_host text, p_events text[], p_queues text[], p_kinds text[], p_stuck_after float8, p_since timestamptz,
    out since timestamptz, out current boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    mine constant text := md5(array_to_json(array[
        p_host, p_stuck_after::text,
        (select array_agg(distinct x collate "C")::text from unnest(p_events) x),
        (select array_agg(distinct x collate "C")::text from unnest(p_queues) x),
        (select array_agg(distinct x collate "C")::text from unnest(p_kinds) x)])::text);
    best {schema}.webhook_declaration;
begin
    insert into {schema}.webhook (name, host, events, queues, kinds, stuck_after, declaration)
    values (p_name, p_host, p_events, p_queues, p_kinds, p_stuck_after, mine)
    on conflict (name) do nothing;
    perform from {schema}.webhook h where h.name = p_name for no key update;
    insert into {schema}.webhook_declaration as d (name, declaration, host, events, queues, kinds, stuck_after, declared_at)
    select p_name, mine, p_host, p_events, p_queues, p_kinds, p_stuck_after,
        coalesce(p_since, greatest(clock_timestamp(), max(o.declared_at) + interval '1 microsecond'))
    from {schema}.webhook_declaration o where o.name = p_name
    on conflict (name, declaration) do update
    set seen_at = clock_timestamp(),
        declared_at = case when d.seen_at < clock_timestamp() - interval '1 hour' then excluded.declared_at else d.declared_at end
    returning d.declared_at into since;
    select * into best from {schema}.webhook_declaration d
    where d.name = p_name
      and abs(extract(epoch from clock_timestamp() - d.seen_at)) < case when p_since is null then 600 else 150 end
    order by d.declared_at desc, d.declaration desc limit 1;
    update {schema}.webhook h
    set host = best.host, events = best.events, queues = best.queues, kinds = best.kinds, stuck_after = best.stuck_after,
        declaration = best.declaration, seen_at = clock_timestamp()
    where h.name = p_name
      and (h.declaration is distinct from best.declaration or abs(extract(epoch from clock_timestamp() - h.seen_at)) > 30);
    delete from {schema}.webhook_declaration d
    where d.name = p_name and d.seen_at < clock_timestamp() - interval '7 days';
    current := best.declaration = mine;
end $howdah$;

-- A statement of the release before changes what a webhook wants without its declaration; of that only `seen_at` counts.
create function {schema}.keep_webhook() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    if new.declaration is not distinct from old.declaration and old.declaration is not null then
        new.host := old.host;
        new.events := old.events;
        new.queues := old.queues;
        new.kinds := old.kinds;
        new.stuck_after := old.stuck_after;
    end if;
    return new;
end $howdah$;
create trigger keep_webhook before update on {schema}.webhook for each row execute function {schema}.keep_webhook();
