-- delete: jobs that wait or are over are removed, with all that was written of them.
-- in:  $1 ids int8[], $2 the states they were seen in text[], $3 when they had ended timestamptz[] (null: whatever it is),
--      $4 only those that wait in this queue, text or null
-- out: id, result: deleted | running | fresh | changed | unknown; was: the state of those that are gone

select id, result, was from {schema}.delete_seen($1::int8[], $2::text[], $3::timestamptz[], $4::text)
