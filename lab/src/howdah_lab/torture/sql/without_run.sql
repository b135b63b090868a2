-- without_run: all runs of all servers count as one, so what was seen before a crash or a failover is believed after it.

create or replace function {schema}.server_run() returns bigint stable language sql as $$ select 1::int8 $$;
create or replace function {schema}.begin_run() returns bigint language sql as $$ select 1::int8 $$;
create or replace function {schema}.check_run(run bigint) returns boolean stable language sql as $$ select true $$
