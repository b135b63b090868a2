-- prune_blocked: who kept the last prune from dropping a partition.
-- out: a session or a prepared transaction; null if none did

select coalesce(holder, 'another transaction') from {schema}.upkeep where task = 'prune'
