-- open: the tables under torture, and the one in which effects are counted. It has no unique key: two are to be seen as two.

create schema if not exists {run_schema};
create table {run_schema}.effect (
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
create table {run_schema}.rows (
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
create index rows_waiting on {run_schema}.rows (id) where state in ('queued', 'errored');
create index rows_processing on {run_schema}.rows (id) where state = 'processing';
create index rows_cancel on {run_schema}.rows (id) where cancel and state in ('queued', 'errored')
;
-- Two releases: which declaration of a consumer is current, and how far the consumer was when it became so.
create table {run_schema}.declaration_change (
    id       bigint generated always as identity primary key,
    consumer text not null,
    types    text[],
    reached  bigint not null
);
create function {run_schema}.note_declaration_change() returns trigger language plpgsql as $$ begin
    insert into {run_schema}.declaration_change (consumer, types, reached)
    select new.name, new.types, min(k.position) from {schema}.checkpoint k where k.consumer = new.name;
    return null;
end $$;
create trigger note_declaration_change after update of digest on {schema}.consumer
    for each row when (old.digest is distinct from new.digest) execute function {run_schema}.note_declaration_change();
-- Rows that were taken from their node, and how long the node had been silent by the server's clock.
create table {run_schema}.reset_row (
    mark    bigint not null,
    node    text not null,
    silence float8 not null,
    at      timestamptz not null default clock_timestamp()
);
create function {run_schema}.note_reset() returns trigger language plpgsql as $$ begin
    insert into {run_schema}.reset_row (mark, node, silence)
    values (new.mark, old.worker_hostname,
        extract(epoch from clock_timestamp() - coalesce(old.last_heartbeat_at, old.started_at))::float8);
    return null;
end $$;
create trigger note_reset after update of num_resets on {run_schema}.rows
    for each row when (new.num_resets > old.num_resets) execute function {run_schema}.note_reset();
-- A table that refuses updates of rows by their refusal: claim (to begin), end (to complete), dropped (to complete, without an
-- error), alone (to begin beside another such row), beat (a heartbeat), never (any end).
create table {run_schema}.refusing (
    like {run_schema}.rows including defaults including identity,
    refusal text not null default '',
    primary key (id),
    check (refusal <> 'claim' or state <> 'processing'),
    check (refusal <> 'end' or state <> 'completed')
);
create index refusing_waiting on {run_schema}.refusing (id) where state in ('queued', 'errored');
create index refusing_processing on {run_schema}.refusing (id) where state = 'processing';
create index refusing_cancel on {run_schema}.refusing (id) where cancel and state in ('queued', 'errored');
create unique index refusing_alone on {run_schema}.refusing (refusal) where refusal = 'alone' and state = 'processing';
create function {run_schema}.refuse() returns trigger language plpgsql as $$ begin
    if old.refusal = 'dropped' then
        return case when new.state <> 'completed' then new end;
    elsif old.state = 'processing' and (new.state <> 'processing') = (old.refusal = 'never') then
        raise exception 'on purpose: %', old.refusal;
    end if;
    return new;
end $$;
create trigger refuse before update on {run_schema}.refusing
    for each row when (old.refusal in ('dropped', 'beat', 'never')) execute function {run_schema}.refuse()
