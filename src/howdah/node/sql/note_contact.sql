-- note_contact: note that a process reaches this server.
-- in:  $1 whether it is a control plane, $2 seconds without contact that are an outage float8
--      $3 seconds after it in which nodes renew their leases float8
-- out: nodes, workers: whether expired leases of nodes, and of remote workers, may be reset
--      until: the server's time until which that holds (seconds since 1970): a statement that acts on it and arrives
--      later was held back by an outage

select {schema}.note_contact(false, $2::float8, $3::float8) as nodes,
    case when $1::bool then {schema}.note_contact(true, $2::float8, $3::float8)
    else {schema}.workers_had_contact($3::float8) end as workers,
    extract(epoch from clock_timestamp())::float8 + $2::float8 as until
