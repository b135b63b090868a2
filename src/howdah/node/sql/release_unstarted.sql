-- release_unstarted: release single jobs without charging an attempt, as those that a blocked event loop has not started.
-- in:  $1 node int, then one array per column: $2 tokens int8[], $3 ids int8[], $4 attempts int2[]
-- out: token and id of those that were released
--
-- Jobs whose lease is locked are left out: heartbeats wait for this statement.

with held as materialized (
    select token from {schema}.lease where token = any($2::int8[]) and node = $1 order by token for update skip locked
)
select a.token, a.id
from (
    select array_agg(x.token) as tokens, array_agg(x.id) as ids, array_agg(x.attempt) as attempts, count(*)::int as n
    from unnest($2::int8[], $3::int8[], $4::int2[]) x(token, id, attempt)
    where x.token = any(array(select token from held))
) x
cross join lateral {schema}.ack($1, x.tokens, x.ids, x.attempts, array_fill('b'::"char", array[x.n]),
    array_fill(0::float8, array[x.n]), array_fill(0::int8, array[x.n]), '{}', '{}', '{}', '{}', '{}') a
where x.n > 0
