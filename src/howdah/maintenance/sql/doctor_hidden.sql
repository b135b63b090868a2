-- doctor_hidden: sessions in this database of which this role is not told what they do.
-- out: sessions, role

select count(*) as sessions, current_user::text as role
from pg_stat_activity a
where a.datname = current_database()
  and a.query = '<insufficient privilege>'
