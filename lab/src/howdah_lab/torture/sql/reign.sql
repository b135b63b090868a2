-- reign: the newest change of a declaration that is committed.
-- out: id, 0 before the first change

select coalesce(max(id), 0) from {yard}.reign where consumer = 'widened'
