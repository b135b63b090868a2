-- make_rows: a table such as an application has, with what it needs to be worked on.

create table {schema}.bench_row (
    id                bigint generated always as identity primary key,
    payload           text not null default repeat('x', 90),
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
create index bench_row_waiting on {schema}.bench_row (id) where state in ('queued', 'errored');
create index bench_row_processing on {schema}.bench_row (id) where state = 'processing'
