-- without_contact: expired leases are reset at once, also right after an outage.

create or replace function {schema}.note_contact(p_remote boolean, p_gap float8, grace float8) returns boolean
language sql as $$ select true $$;
create or replace function {schema}.workers_had_contact(grace float8) returns boolean stable
language sql as $$ select true $$
