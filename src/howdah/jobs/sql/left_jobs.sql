-- left_jobs: list the jobs that are no longer part of these leases, which the caller has locked.
-- in:  $1 leases int8[]
-- out: token, id
--
-- The last check of a batch before its commit, after ack_batch: a retry or delete for which that statement waited is
-- visible now, and a later one waits for the commit.

select t.token, g.id
from unnest($1::int8[]) t(token)
cross join lateral (select g.id from {schema}.gone g where g.token = t.token offset 0) g
