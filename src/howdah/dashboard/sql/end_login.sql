-- end_login: delete a session.
-- in: $1 the hashes it may have bytea[]

delete from {schema}.login where hash = any($1::bytea[])
