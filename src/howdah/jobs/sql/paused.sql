-- paused: whether a queue, or a schedule, is paused. No row: it never was, or there is none.
-- in:  $1 thing 'queue' or 'schedule', $2 name
-- out: paused

select q.paused from {schema}.queue q where $1::text = 'queue' and q.name = $2
union all
select s.paused from {schema}.schedule s where $1 = 'schedule' and s.name = $2
