-- kept: the marks of all that was ever accepted, as far as this server knows.
-- out: mark

select (args ->> 'mark')::int8 as mark from {schema}.jobs
union
select (data ->> 'mark')::int8 from {schema}.event
union
select mark from {run_schema}.rows
