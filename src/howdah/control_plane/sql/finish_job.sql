-- finish_job: record the outcome of one job together with the response, so that a repeated report gets the same response.
-- in:  $1 node int, $2 token int8, $3 job int8, $4 attempt int2, $5 outcome, $6 delay seconds float8, $7 took microseconds int8,
--      $8 result json, $9 error class, $10 message, $11 traceback, $12 finished leases int8[]
-- out: state; no row if the job is no longer under this lease

with ended as materialized (
    select a.fate
    from {schema}.ack($1, array[$2::int8], array[$3::int8], array[$4::int2], array[$5::"char"], array[$6::float8],
        array[$7::int8], array[$8::json], array[$9::text], array[$10::text], array[$11::text], $12::int8[]) a
)
insert into {schema}.report as r (token, job, node, state)
select $2, $3, $1, case e.fate when 'd' then 'done' when 'f' then 'failed' when 'c' then 'cancelled' else 'queued' end
from ended e
on conflict (token, job) do update set state = r.state
returning r.state
