-- token_revoke: a token opens nothing any more; every control plane knows within seconds.
-- in:  $1 id
-- out: id

update {schema}.api_token set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = $1 returning id
