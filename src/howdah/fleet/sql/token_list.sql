-- token_list: every token, newest first; none of them can be read again.
-- out: the fields of TokenRow

select id, name, hint, scopes, queues, created_at, expires_at, used_at, revoked_at
from {schema}.api_token
order by id desc
limit 1000
