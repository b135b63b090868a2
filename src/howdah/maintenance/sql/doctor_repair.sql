-- doctor_repair: what self-repair has found since the schema was made.
-- in:  nothing
-- out: jobs (found in no place), leases (found with nothing left in them), age (seconds since the last one; null: none)

select jobs, leases, extract(epoch from clock_timestamp() - found_at)::float8 as age from {schema}.repair_state
