-- release_partitions: a node stops consuming: release its partitions and the leadership, and notify the next leader.
-- in:  $1 node int
-- out: number of partitions released
--
-- Locks the leadership first, as assign does: an assign of this node that still runs on the server has locked it.

with undeclared as (
    update {schema}.node set consumers = null where id = $1
),
freed as (
    update {schema}.consumer_partition set node = null, epoch = epoch + 1, assigned_at = clock_timestamp() where node = $1 returning 1
),
leadership as (
    update {schema}.leader set node = null, expires_at = null where node = $1 returning 1
)
select count(*) filter (where t.is_partition) as freed, max(pg_notify({schema}.log_channel(), 'assign')::text)
from (select false as is_partition from leadership union all select true from freed) t
