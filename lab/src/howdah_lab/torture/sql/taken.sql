-- taken: whether another run uses this database.
-- out: taken

select to_regnamespace({'run_schema'}) is not null or to_regnamespace({'schema'}) is not null
