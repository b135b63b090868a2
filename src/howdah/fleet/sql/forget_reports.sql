-- forget_reports: nobody repeats a report after this long. Safe in every replica.
-- in:  $1 seconds float8

delete from {schema}.report where said_at < statement_timestamp() - $1::float8 * interval '1 second'
