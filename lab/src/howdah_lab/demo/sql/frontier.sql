-- frontier: the smallest id that may still change, and the next one to be given out.

select least(
        h.head,
        (select min(lo) from {schema}.ready),
        (select min(id) from {schema}.later),
        (select min(first_id) from {schema}.lease)) as frontier,
    h.head
from (select last_value + 1 as head from {schema}.job_id) h
