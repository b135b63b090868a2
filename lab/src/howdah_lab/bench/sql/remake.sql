-- remake: an empty schema that says whose it is.

drop schema if exists {schema} cascade;
create schema {schema};
comment on schema {schema} is 'howdah bench: may be dropped'
