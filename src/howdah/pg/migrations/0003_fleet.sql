-- 0003: workers without a database: their nodes, tokens, logs and history.

alter table {schema}.node
    add column remote boolean not null default false,       -- works over HTTP
    add column labels text[] not null default '{}',
    add column tables text[] not null default '{}',         -- tables of the user's it works on
    add column leaving boolean not null default false,      -- somebody asked it to drain; never undone
    add column credential bytea,                            -- SHA-256 of what it must show
    add column api_token int;                               -- what it registered with; revoked, it lets the worker in no more

-- What opens the API. Only hashes are kept: a token is 256 random bits, so no slow hash is needed.
create table {schema}.api_token (
    id         int generated always as identity primary key,
    name       text not null,
    hash       bytea not null unique,
    hint       text not null,                               -- its first characters, for people
    scopes     text[] not null,
    queues     text[],                                      -- null: every queue
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    used_at    timestamptz,
    revoked_at timestamptz
);

-- What running jobs say, line by line; pruned with the jobs.
create table {schema}.job_log (
    id      bigint not null,
    attempt smallint not null,
    at      timestamptz not null default clock_timestamp(),
    stream  text not null,                                  -- stdout, stderr or log
    line    text not null,
    seq     bigint generated always as identity
);
create index job_log_job on {schema}.job_log (id, seq);
create index job_log_at on {schema}.job_log using brin (at);

create table {schema}.progress (
    id      bigint primary key,
    token   bigint not null,
    share   float8 not null check (share between 0 and 1),
    note    text,
    said_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- One row per run of a build or an SDLC command: who ran what, where, and what came of it.
create table {schema}.run (
    id          bigint generated always as identity primary key,
    job         bigint not null,
    attempt     smallint not null,
    kind        text not null,
    node        int,
    spec        json not null,
    state       text not null default 'running' check (state in ('running', 'done', 'failed', 'lost')),
    code        text,
    result      json,
    started_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    unique (job, attempt)
);
create index run_running on {schema}.run (job) where state = 'running';

-- Kinds the fleet leaves alone for a while, since what they need answered "not so fast".
create table {schema}.hold (
    kind   text primary key,
    until  timestamptz not null,
    reason text not null
);

-- What single reports came to, so that one said again is answered the same and changes nothing. Forgotten after a while.
create table {schema}.report (
    token   bigint not null,
    job     bigint not null,
    node    int not null,
    state   text not null,
    said_at timestamptz not null default clock_timestamp(),
    primary key (token, job)
);
create index report_old on {schema}.report (said_at);
