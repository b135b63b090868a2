-- history_partitions: ids up to this one are given out, and there are partitions for them, as upkeep makes them.
-- in:  $1 id int8

select {schema}.grow(greatest(4, 2 + (($1::int8 - s.last_value) / 1000000)::int)), setval({'schema.job_id'}, greatest(s.last_value, $1))
from {schema}.job_id s
