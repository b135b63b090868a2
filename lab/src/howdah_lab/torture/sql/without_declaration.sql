-- without_declaration: any node may consume, whatever it declared.

create or replace function {schema}.barred(p_node int, p_consumer text) returns boolean stable
language sql as $$ select false $$
