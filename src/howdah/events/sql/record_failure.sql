-- record_failure: record that a consumer failed on an event. False: this node no longer owns the partition.
-- in:  $1 consumer, $2 part, $3 node, $4 epoch, $5 failures, $6 halted, $7 error position, $8 error, $9 message, $10 traceback,
--      $11 run int8
-- out: noted

select case when {schema}.server_run() = $11::int8
    then {schema}.fault($1, $2::int, $3::int, $4::int8, $5::int, $6, $7::int8, $8, $9, $10)
    else false end as noted
