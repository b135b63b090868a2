-- begin_login: store a new session.
-- in: $1 hash bytea, $2 who text, $3 level text, $4 token int or null, $5 seconds it lasts float8

insert into {schema}.login (hash, who, level, token, expires_at)
values ($1, $2, $3, $4, now() + $5 * interval '1 second')
