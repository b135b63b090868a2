-- next_token: the token of the next claim, larger than every one before.
-- in:  $1 newest token this process has had int8
-- out: token
--
-- Read in a statement of its own, so that a claim whose reply is lost can be released by its token.

select {schema}.next_token($1::int8)
