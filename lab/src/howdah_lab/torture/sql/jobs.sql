-- jobs: every job that a client asked for, with what became of it.
-- out: id, mark, kind, state (null: it is nowhere), attempt, max_attempts, error

select id, (args ->> 'mark')::int8 as mark, kind, state, attempt, max_attempts, error
from {schema}.jobs
where queue in ('jobs', 'fleet')
  and kind <> 'tick'
