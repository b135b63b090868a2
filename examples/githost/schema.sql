-- The tables of the git host. Howdah's tables are in a schema of their own.

create table if not exists repo (
    id         bigint generated always as identity primary key,
    path       text not null unique,
    size_bytes bigint,
    sized_at   timestamptz
);

create table if not exists push_event (
    id           bigint generated always as identity primary key,
    repo_id      bigint not null references repo,
    ref          text not null,
    before       text not null,          -- zeros: the ref was created
    after        text not null,          -- zeros: the ref was deleted
    pushed_at    timestamptz not null default now(),
    commits      int,
    processed_at timestamptz
);
