-- without_sequence: tokens are numbers of a sequence, and nothing else.

create or replace function {schema}.next_token(newest bigint default 0) returns bigint volatile
language sql as $$ select nextval({'schema.token'}) $$
