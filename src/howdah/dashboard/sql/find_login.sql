-- find_login: the user of a session. It ends with the token it was begun with.
-- in:  $1 the hashes it may have bytea[]
-- out: hash, who, level, token

select l.hash, l.who, l.level, l.token
from {schema}.login l
left join {schema}.api_token t on t.id = l.token
where l.hash = any($1::bytea[])
  and l.expires_at > now()
  and (l.token is null or (t.revoked_at is null and coalesce(t.expires_at > now(), true)))
