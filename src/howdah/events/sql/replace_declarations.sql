-- replace_declarations: replace declarations that no live node has any more.
-- in:  $1 seconds after which a silent node is dead float8
-- out: consumer, node (that declared it otherwise than is current)

select consumer, node from {schema}.replace_declarations($1::float8)
