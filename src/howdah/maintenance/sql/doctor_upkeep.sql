-- doctor_upkeep: partitions that could not be created or dropped, and who held the tables.
-- out: task (grow or prune), blocked (seconds since the first try), tried (seconds since the last one), holder or null

select task, extract(epoch from clock_timestamp() - since)::float8 as blocked,
    extract(epoch from clock_timestamp() - at)::float8 as tried, holder
from {schema}.upkeep
order by task
