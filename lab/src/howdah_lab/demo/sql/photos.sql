-- photos: did every row of the shop's own table happen exactly once?
-- out: rows; developed; refused: failed; empty: those that had to; waiting; lost: finished without effect; doubled: with two

select count(*) as rows,
    count(*) filter (where state = 'completed') as developed,
    count(*) filter (where state = 'failed') as refused,
    count(*) filter (where state = 'failed' and pixels = 0) as empty,
    count(*) filter (where state not in ('completed', 'failed')) as waiting,
    count(*) filter (where state = 'completed' and developed = 0) as lost,
    count(*) filter (where developed > 1 or (developed > 0 and state <> 'completed')) as doubled
from {shop}.photos
