-- put_harmed: rows of the table that refuses updates.
-- in:  $1 marks int8[], $2 pauses float8[], $3 harms text[]

insert into {yard}.harmed (mark, pause, harm) select * from unnest($1::int8[], $2::float8[], $3::text[])
