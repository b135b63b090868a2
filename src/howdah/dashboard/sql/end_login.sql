-- end_login: delete a session.
-- in: $1 hash bytea

delete from {schema}.login where hash = $1
