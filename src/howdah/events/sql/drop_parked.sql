-- drop_parked: delete parked events.
-- in:  $1 consumer, $2 positions int8[] or null for all
-- out: position

with gone as (
    delete from {schema}.parked where consumer = $1 and ($2::int8[] is null or position = any($2)) returning position
)
select position from gone order by 1
