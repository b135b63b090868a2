-- reset: take back expired leases; safe on every node at once.
-- in:  $1 leases at most int
-- out: leases, requeued, ended

select leases, requeued, ended from {schema}.reset($1)
