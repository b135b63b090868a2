-- 0002: work queues over application tables.
--
-- The rows themselves are in the application's tables. Here is only what nodes declare about these tables, and the rows
-- whose update a table refuses.

-- One row per node, table and name: how long a row of this node may go without a heartbeat. Refreshed while the node runs.
create table {schema}.table_worker (
    relation      text not null,                            -- the table, quoted
    node          text not null,                            -- as in worker_hostname
    name          text not null,                            -- of the table in the app
    stalled_after float8 not null,                          -- seconds
    condition     text,                                     -- `where`, with a digest of its values
    seen_at       timestamptz not null default clock_timestamp(),
    primary key (relation, node, name)
);

-- The last refusal of each row and act; at most a hundred per table are kept.
create table {schema}.table_refusal (
    relation text not null,
    row_id   text not null,
    act      text not null,
    message  text not null,
    seen_at  timestamptz not null default clock_timestamp(),
    primary key (relation, row_id, act)
);
