-- record: add an audit entry, in the transaction of the action.
-- in:  $1 who, $2 via, $3 address or null, $4 verb, $5 thing, $6 ids text[], $7 filter, $8 before, $9 after (each json as text,
--      or null), $10 count int8

insert into {schema}.audit (who, via, address, verb, thing, ids, filter, before, after, count)
values ($1, $2, $3, $4, $5, $6::text[], $7::text::json, $8::text::json, $9::text::json, $10)
