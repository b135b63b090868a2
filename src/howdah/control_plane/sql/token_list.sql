-- token_list: all tokens, newest first; only their hashes are stored.
-- out: the fields of TokenRow

select id, name, hint, scopes, queues, created_at, expires_at, used_at, revoked_at
from {schema}.api_token
order by id desc
limit 1000
