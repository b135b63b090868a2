-- without_reset: leases of dead nodes are not reset.

create or replace function {schema}.reset(
    most int default 100, nodes boolean default true, workers boolean default true,
    out leases int, out requeued bigint, out ended bigint)
language sql as $$ select 0, 0::int8, 0::int8 $$
