-- open: the tables under torture, and the one in which effects are counted. It has no unique key: two are to be seen as two.

create schema if not exists {yard};
create table {yard}.effect (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default clock_timestamp(),
    front    text not null,
    mark     bigint not null,
    stream   text not null,
    version  bigint not null,
    attempt  int not null,
    token    bigint not null,
    pid      int not null
);
create table {yard}.rows (
    id                bigint generated always as identity primary key,
    mark              bigint not null,
    pause             float8 not null,
    state             text not null default 'queued',
    failure_message   text,
    queued_at         timestamptz not null default now(),
    started_at        timestamptz,
    finished_at       timestamptz,
    process_after     timestamptz,
    num_resets        int not null default 0,
    num_failures      int not null default 0,
    last_heartbeat_at timestamptz,
    execution_logs    json[],
    worker_hostname   text not null default '',
    cancel            boolean not null default false,
    lease_token       bigint
);
create index rows_waiting on {yard}.rows (id) where state in ('queued', 'errored');
create index rows_processing on {yard}.rows (id) where state = 'processing';
create index rows_cancel on {yard}.rows (id) where cancel and state in ('queued', 'errored')
;
-- Two releases: which declaration of a consumer is current, and how far the consumer was when it became so.
create table {yard}.reign (
    id       bigint generated always as identity primary key,
    consumer text not null,
    types    text[],
    reached  bigint not null
);
create function {yard}.note_reign() returns trigger language plpgsql as $$ begin
    insert into {yard}.reign (consumer, types, reached)
    select new.name, new.types, min(k.position) from {schema}.checkpoint k where k.consumer = new.name;
    return null;
end $$;
create trigger note_reign after update of digest on {schema}.consumer
    for each row when (old.digest is distinct from new.digest) execute function {yard}.note_reign();
-- Rows that were taken from their node, and how long the node had been silent by the server's clock.
create table {yard}.reset_row (
    mark    bigint not null,
    node    text not null,
    silence float8 not null,
    at      timestamptz not null default clock_timestamp()
);
create function {yard}.note_reset() returns trigger language plpgsql as $$ begin
    insert into {yard}.reset_row (mark, node, silence)
    values (new.mark, old.worker_hostname,
        extract(epoch from clock_timestamp() - coalesce(old.last_heartbeat_at, old.started_at))::float8);
    return null;
end $$;
create trigger note_reset after update of num_resets on {yard}.rows
    for each row when (new.num_resets > old.num_resets) execute function {yard}.note_reset();
-- A table that refuses updates of rows with harm: claim (to begin), end (to complete), dropped (to complete, without an
-- error), alone (to begin beside another such row), beat (a heartbeat), never (any end).
create table {yard}.harmed (
    like {yard}.rows including defaults including identity,
    harm text not null default '',
    primary key (id),
    check (harm <> 'claim' or state <> 'processing'),
    check (harm <> 'end' or state <> 'completed')
);
create index harmed_waiting on {yard}.harmed (id) where state in ('queued', 'errored');
create index harmed_processing on {yard}.harmed (id) where state = 'processing';
create index harmed_cancel on {yard}.harmed (id) where cancel and state in ('queued', 'errored');
create unique index harmed_alone on {yard}.harmed (harm) where harm = 'alone' and state = 'processing';
create function {yard}.refuse() returns trigger language plpgsql as $$ begin
    if old.harm = 'dropped' then
        return case when new.state <> 'completed' then new end;
    elsif old.state = 'processing' and (new.state <> 'processing') = (old.harm = 'never') then
        raise exception 'on purpose: %', old.harm;
    end if;
    return new;
end $$;
create trigger refuse before update on {yard}.harmed
    for each row when (old.harm in ('dropped', 'beat', 'never')) execute function {yard}.refuse()
