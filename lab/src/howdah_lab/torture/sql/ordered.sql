-- ordered: every event of the type that only the new release consumes.
-- out: position, mark, reign (that its client had seen)

select position, (data ->> 'mark')::int8 as mark, coalesce((data ->> 'reign')::int8, 0) as reign
from {schema}.event
where type = 'Ordered'
order by position
