-- lock_refusing: lock some rows of the table that refuses updates, waiting or worked on.
-- in:  $1 how many int

select mark from {run_schema}.refusing where state in ('queued', 'processing') order by random() limit $1 for update skip locked
