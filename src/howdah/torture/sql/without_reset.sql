-- without_reset: what a node held when it went away stays with it.

create or replace function {schema}.reset(most int default 100, out leases int, out requeued bigint, out ended bigint)
language sql as $$ select 0, 0::int8, 0::int8 $$
