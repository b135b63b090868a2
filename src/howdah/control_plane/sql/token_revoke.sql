-- token_revoke: revoke a token; every control plane rejects it within seconds.
-- in:  $1 id
-- out: name, fresh (true if it was valid until now)

update {schema}.api_token t set revoked_at = coalesce(t.revoked_at, clock_timestamp())
from (select id, revoked_at is null as fresh from {schema}.api_token where id = $1 for update) o
where t.id = o.id
returning t.name, o.fresh
