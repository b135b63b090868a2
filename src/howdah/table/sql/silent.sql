-- silent: unlocked rows whose worker has been silent for a given fraction of its stall time.
-- in:  $1 fraction of the stall time float8, 0 to 1
--      $2 rows at most int
--      $3 seconds after which a worker counts as dead float8: of workers that are not named below
--      $4 names of workers text[], each once, $5 their seconds float8[]
-- out: id, token, heard (seconds since 1970, '-infinity': never), silent (seconds), stall (seconds that are its worker's),
--      own (whether it is a row of this app), now (seconds since 1970)
--
-- A heartbeat passes over a locked row, so the silence of a row that was locked says nothing about its worker. A node
-- checks several times before a reset, and locked rows are left out: see reset. FOR SHARE, so that concurrent checks do
-- not take each other for such a lock. No join: its name could be the table's alias.

select {alias}.{id} as id, {alias}.{lease_token} as token,
    coalesce(extract(epoch from coalesce({alias}.{last_heartbeat_at}, {alias}.{started_at}))::float8, '-infinity') as heard,
    extract(epoch from clock_timestamp())::float8
        - coalesce(extract(epoch from coalesce({alias}.{last_heartbeat_at}, {alias}.{started_at}))::float8, '-infinity') as silent,
    coalesce(($5::float8[])[array_position($4::text[], {alias}.{worker_hostname}::text)], $3::float8) as stall, (true/*<where>*/) is true as own,
    extract(epoch from clock_timestamp())::float8 as now
from {namespace}.{table} as {alias}
where {alias}.{state} = 'processing'/*<ids>*/
  and coalesce({alias}.{last_heartbeat_at}, {alias}.{started_at}, '-infinity')
      < clock_timestamp() - $1::float8 * coalesce(($5::float8[])[array_position($4::text[], {alias}.{worker_hostname}::text)], $3::float8) * interval '1 second'
limit $2::int
for share of {alias} skip locked
