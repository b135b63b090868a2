-- schedule_since: when the declarations of a node were first declared.
-- in:  $1 names text[], $2 declarations text[]
-- out: name, declared_at

select d.name, d.declared_at
from unnest($1::text[], $2::text[]) x(name, declaration)
join {schema}.schedule_declaration d on d.name = x.name and d.declaration = x.declaration
