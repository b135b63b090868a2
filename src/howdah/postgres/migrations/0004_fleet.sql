-- 0004: remote workers: API tokens, builds, and what the control plane remembers about them.

-- Tokens of the API. Only hashes are stored: a token is 256 random bits, so no slow hash is needed.
create table {schema}.api_token (
    id         int generated always as identity primary key,
    name       text not null,
    hash       bytea not null unique,
    hint       text not null,                               -- its first characters, for display
    scopes     text[] not null,
    queues     text[],                                      -- null: every queue
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    used_at    timestamptz,
    revoked_at timestamptz
);

-- One row per run of a build or an SDLC command: the node that ran it, the specification and the result.
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

-- Outcomes of single reports: a repeated report gets the same reply and changes nothing (idempotent). Deleted after a while.
create table {schema}.report (
    token       bigint not null,
    job         bigint not null,
    node        int not null,
    state       text not null,
    reported_at timestamptz not null default clock_timestamp(),
    primary key (token, job)
);
create index report_old on {schema}.report (reported_at);

-- Rows of application tables that remote workers hold. A claim over HTTP is recorded here before its reply is sent, every
-- heartbeat refreshes it, and an entry without a heartbeat for the duration of a lease has expired.
create table {schema}.row_lease (
    token    bigint primary key,
    node     int not null,
    store    text not null,                                 -- the name of the table
    ids      json not null,                                 -- the keys of its rows
    heard_at timestamptz not null default clock_timestamp()
) with (fillfactor = 70);
create index row_lease_node on {schema}.row_lease (node);
