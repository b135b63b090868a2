-- list_of: audit entries of one object, newest first.
-- in:  $1 who, $2 via, $3 verb, $4 thing (each text or null), $5 since, $6 until timestamptz or null, $7 before int8, $8 rows int,
--      $9 id text
-- out: the fields of AuditEntry

with found as materialized (
    select a.* from {schema}.audit a where a.ids @> array[$9::text]
)
select f.id, f.at, f.who, f.via, f.address, f.verb, f.thing, f.ids, f.filter, f.before, f.after, f.count
from found f
where f.id < $7
  and ($1::text is null or f.who = $1)
  and ($2::text is null or f.via = $2)
  and ($3::text is null or f.verb = $3)
  and ($4::text is null or f.thing = $4)
  and ($5::timestamptz is null or f.at >= $5)
  and ($6::timestamptz is null or f.at < $6)
order by f.id desc
limit $8
