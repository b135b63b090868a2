-- The tables of the application: repositories, their uploads, and the symbols found in these.

create table repositories (
    id             integer generated always as identity primary key,
    name           text not null unique,
    indexed_commit text
);

create table uploads (
    -- the columns that Howdah requires: `howdah table create uploads` prints them
    id                bigint generated always as identity primary key,
    state             text not null default 'queued',
    failure_message   text,
    queued_at         timestamptz default now(),
    started_at        timestamptz,
    finished_at       timestamptz,
    process_after     timestamptz,
    num_resets        integer not null default 0,
    num_failures      integer not null default 0,
    last_heartbeat_at timestamptz,
    execution_logs    json[],
    worker_hostname   text not null default '',
    cancel            boolean not null default false,
    lease_token       bigint,

    -- the columns of the application
    repository_id     integer not null references repositories,
    commit            text not null,
    file              text not null,
    size              bigint not null
);

-- For claims, in the order of order_by; for resets; for cancellations.
-- `howdah table check uploads -a uploads.app:app` reports missing columns and indexes.
create index uploads_waiting on uploads (repository_id, id) where state in ('queued', 'errored');
create index uploads_processing on uploads (id) where state = 'processing';
create index uploads_cancel on uploads (id) where cancel and state in ('queued', 'errored');

create view uploads_with_repository as
select u.*, r.name as repository_name
from uploads u
join repositories r on r.id = u.repository_id;

create table symbols (
    repository_id integer not null references repositories,
    upload_id     bigint not null references uploads,
    path          text not null,
    line          integer not null,
    kind          text not null,
    name          text not null
);
