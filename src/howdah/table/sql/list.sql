-- list: rows by descending id.
-- in:  $1 rows at most int
--      $2 id the page begins below
-- out: the contract's columns of each row
--
-- Times travel as text: PostgreSQL knows years that Python does not.
-- The state is put in as text, because a parameter could not be matched with a partial index.

select t.{id}::text as id, t.{state}::text as state, coalesce(t.{num_failures}, 0)::int as failures,
    coalesce(t.{num_resets}, 0)::int as resets, to_json(t.{queued_at}) #>> '{}' as queued_at, to_json(t.{process_after}) #>> '{}' as process_after,
    to_json(t.{started_at}) #>> '{}' as started_at, to_json(t.{finished_at}) #>> '{}' as finished_at, to_json(t.{last_heartbeat_at}) #>> '{}' as last_heartbeat_at,
    t.{worker_hostname}::text as worker, left(t.{failure_message}, 2000) as message, t.{cancel} is true as cancel
from {namespace}.{table} as t
where true/*<state>*//*<before>*/
  and t.{id} < $2::pg_catalog.{id_type}/*</before>*/
order by t.{id} desc
limit $1::int
