-- release_unconfirmed: release the leases of a node whose claims got no reply.
-- in:  $1 node int, $2 the newest token it has had int8
-- out: leases, requeued, ended
--
-- One node claims through one connection, one claim after the other, and its tokens rise: unknown
-- leases have newer tokens.

select leases, requeued, ended
from {schema}.release($1, array(select token from {schema}.lease where node = $1 and token > $2::int8))
