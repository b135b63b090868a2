-- node: a registered worker, for authentication and claims.
-- in:  $1 id
-- out: the fields of RegisteredWorker

select n.id, n.name, n.queues, n.kinds, n.tables, n.labels, n.slots, n.credential, n.leaving, n.state,
    n.stopped_at is not null as gone,
    n.api_token is not null and not exists (
        select from {schema}.api_token t
        where t.id = n.api_token and t.revoked_at is null
          and (t.expires_at is null or t.expires_at > clock_timestamp())) as revoked,
    (select t.queues from {schema}.api_token t where t.id = n.api_token) as token_queues
from {schema}.node n
where n.id = $1 and n.remote
