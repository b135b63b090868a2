-- doctor_connections: how full the server is.
-- out: used, most

select count(*) as used,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as most
from pg_stat_activity
where backend_type = 'client backend'
