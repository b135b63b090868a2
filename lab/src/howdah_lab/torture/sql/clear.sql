-- clear: leave nothing behind.

drop schema if exists {run_schema} cascade;
drop schema if exists {schema} cascade
