-- list: audit entries, newest first.
-- in:  $1 who, $2 via, $3 verb, $4 thing (each text or null), $5 since, $6 until timestamptz or null, $7 before int8, $8 rows int
-- out: the fields of AuditEntry
--
-- COALESCE hides the filters from the planner, so that it scans the ids downwards.

select a.id, a.at, a.who, a.via, a.address, a.verb, a.thing, a.ids, a.filter, a.before, a.after, a.count
from {schema}.audit a
where a.id < $7
  and coalesce(a.who = $1, $1::text is null)
  and coalesce(a.via = $2, $2::text is null)
  and coalesce(a.verb = $3, $3::text is null)
  and coalesce(a.thing = $4, $4::text is null)
  and coalesce(a.at >= $5, $5::timestamptz is null)
  and coalesce(a.at < $6, $6::timestamptz is null)
order by a.id desc
limit $8
