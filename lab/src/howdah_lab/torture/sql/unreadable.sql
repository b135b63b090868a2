-- unreadable: a job whose arguments do not fit its task.
-- in:  $1 mark int8

select {schema}.enqueue('effect', json_build_object('mark', $1::int8, 'pause', 'for ever'), queue => 'jobs', max_attempts => 2)
