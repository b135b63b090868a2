-- token_find: scopes and queues of a valid token. The caller compares the hash again, in constant time.
-- in:  $1 hash bytea
-- out: id, name, hash, scopes, queues

with found as (
    select t.id, t.name, t.hash, t.scopes, t.queues, t.used_at from {schema}.api_token t
    where t.hash = $1 and t.revoked_at is null and (t.expires_at is null or t.expires_at > clock_timestamp())
),
used as (
    update {schema}.api_token t set used_at = clock_timestamp() from found f
    where t.id = f.id and (f.used_at is null or f.used_at < clock_timestamp() - interval '1 minute')
)
select id, name, hash, scopes, queues from found
