-- 0009: who is logged in to the dashboard.

-- Only the hash of what the browser holds. A session of an API token ends with it.
create table {schema}.login (
    hash       bytea primary key,
    who        text not null,
    level      text not null check (level in ('read', 'all')),
    token      int references {schema}.api_token (id) on delete cascade,
    began_at   timestamptz not null default now(),
    expires_at timestamptz not null
);
create index login_old on {schema}.login (expires_at);
