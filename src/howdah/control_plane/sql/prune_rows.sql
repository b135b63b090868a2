-- prune_rows: delete leases on rows of tables that are no longer served. Safe in every replica.
-- in:  $1 seconds float8

delete from {schema}.row_lease where heard_at < statement_timestamp() - $1::float8 * interval '1 second'
