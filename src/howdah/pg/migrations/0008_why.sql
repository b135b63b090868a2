-- 0008: why: what a node says of itself, so that others can tell why it leaves a job alone.

alter table {schema}.node
    add column limits json,                                  -- queue to the most of its jobs at once; null: none has a limit
    add column poll   float8,                                -- seconds between two looks when no wake-up arrives
    add column beside int not null default 0;                -- slots taken by what no lease shows: rows of tables, costly jobs
