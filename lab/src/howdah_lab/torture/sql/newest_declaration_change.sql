-- newest_declaration_change: the newest change of a declaration that is committed.
-- out: id, 0 before the first change

select coalesce(max(id), 0) from {run_schema}.declaration_change where consumer = 'widened'
