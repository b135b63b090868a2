-- drop: the schema and all in it.

drop schema if exists {schema} cascade
