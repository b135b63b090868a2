-- position_at: the last position before a moment.
-- in:  $1 moment timestamptz, $2 frontier int8
-- out: position

select coalesce((
    select e.position - 1 from {schema}.event e where e.at >= $1 and e.position <= $2 order by e.position limit 1), $2) as position
