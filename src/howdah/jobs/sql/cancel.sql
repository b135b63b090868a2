-- cancel: waiting jobs end at once, running ones at the next heartbeat.
-- in:  $1 ids int8[], $2 the states they were seen in text[] (null: whatever it is), $3 only those that wait in this queue,
--      text or null
-- out: id, result: cancelled | asked | over | changed | unknown

select id, result from {schema}.cancel_seen($1::int8[], $2::text[], $3::text)
