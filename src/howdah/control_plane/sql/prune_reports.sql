-- prune_reports: delete stored responses to reports; no worker repeats a report after this time. Safe in every replica.
-- in:  $1 seconds float8

delete from {schema}.report where reported_at < statement_timestamp() - $1::float8 * interval '1 second'
