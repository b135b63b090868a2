-- connections: how many the application has open.
-- in:  $1 our own names text
-- out: connections

select count(*)
from pg_stat_activity
where datname = current_database()
  and application_name like 'howdah %'
  and application_name <> $1
