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
