-- doctor_disk: sorts about eight megabytes with little memory, which must be written to the disk and are removed at once.
-- out: bytes
--
-- There is no function that tells how much room is left. A table would have to be grown to find out; this grows none.

select sum(length(x.filler)) as bytes
from (select repeat('x', 1000) || i as filler from generate_series(1, 8000) i order by -i) x
