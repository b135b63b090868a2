-- clear: leave nothing behind.

drop schema if exists {yard} cascade;
drop schema if exists {schema} cascade
