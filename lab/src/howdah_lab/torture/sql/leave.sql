-- leave: an effect.
-- in:  $1 front, $2 mark, $3 stream, $4 version, $5 attempt, $6 token, $7 pid

insert into {run_schema}.effect (front, mark, stream, version, attempt, token, pid) values ($1, $2, $3, $4, $5, $6, $7)
