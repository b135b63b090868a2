-- ordered: every event of the type that only the new release consumes.
-- out: position, mark, declaration_change (that its client had seen)

select position, (data ->> 'mark')::int8 as mark, coalesce((data ->> 'declaration_change')::int8, 0) as declaration_change
from {schema}.event
where type = 'Ordered'
order by position
