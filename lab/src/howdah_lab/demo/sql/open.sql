-- open: the shop's own tables, one of them worked on by itself, and the read models made of the log.

create schema if not exists {shop};
create table {shop}.orders (
    id       bigint generated always as identity primary key,
    address  text not null,
    charged  int not null default 0,
    shipped  int not null default 0
);
create table {shop}.order_view (id bigint primary key, state text not null, version bigint not null, events bigint not null);
create table {shop}.sales (item text primary key, sold bigint not null, cents bigint not null);
create table {shop}.visits (shelf bigint primary key, seconds bigint not null);
create table {shop}.photos (
    id                bigint generated always as identity primary key,
    pixels            int not null,
    developed         int not null default 0,
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
create index photos_waiting on {shop}.photos (id) where state in ('queued', 'errored');
create index photos_processing on {shop}.photos (id) where state = 'processing';
create index photos_cancel on {shop}.photos (id) where cancel and state in ('queued', 'errored')
