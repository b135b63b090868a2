-- connections: those of ours to this database that were opened since.
-- in:  $1 since timestamptz
-- out: how many

select count(*)
from pg_stat_activity
where datname = current_database() and application_name like 'howdah %' and backend_start > $1
