-- token_create: store the hash of a new token.
-- in:  $1 name, $2 hash bytea, $3 hint, $4 scopes text[], $5 queues text[] or null, $6 seconds until it expires float8 or null
-- out: the fields of TokenRow

insert into {schema}.api_token (name, hash, hint, scopes, queues, expires_at)
values ($1, $2, $3, $4::text[], $5::text[], clock_timestamp() + $6::float8 * interval '1 second')
returning id, name, hint, scopes, queues, created_at, expires_at, used_at, revoked_at
