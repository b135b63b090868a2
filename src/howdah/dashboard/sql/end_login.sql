-- end_login: somebody signed out.
-- in: $1 hash bytea

delete from {schema}.login where hash = $1
