-- doctor_dead: dead rows in the tables that change.
-- in:  $1 schema text
-- out: name, live, dead, vacuumed (seconds ago or null), disabled, switched_on (for the whole server); the worst first

select c.relname as name, s.n_live_tup as live, s.n_dead_tup as dead,
    extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8 as vacuumed,
    coalesce('autovacuum_enabled=false' = any(c.reloptions), false) as disabled,
    current_setting('autovacuum') = 'on' as switched_on
from pg_stat_all_tables s
join pg_class c on c.oid = s.relid
where s.schemaname = $1
  and c.relname ~ '^(ready|later|lease|gone|done(_.*)?|node|share|checkpoint|leader)$'
order by s.n_dead_tup desc
