-- delete: jobs that wait or are over are removed, with all that was written of them.
-- in:  $1 ids int8[]
-- out: id, said: deleted | running | fresh | unknown; was: the state of those that are gone

select id, said, was from {schema}.delete($1::int8[])
