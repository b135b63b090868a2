-- cancel: waiting jobs end at once, running ones at the next heartbeat.
-- in:  $1 ids int8[]
-- out: id, said: cancelled | asked | over | unknown

select id, said from {schema}.cancel($1::int8[])
