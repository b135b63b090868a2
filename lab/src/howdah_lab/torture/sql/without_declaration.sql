-- without_declaration: any node may consume, whatever it declared.

create or replace function {schema}.declares_other_filter(p_node int, p_consumer text) returns boolean stable
language sql as $$ select false $$
