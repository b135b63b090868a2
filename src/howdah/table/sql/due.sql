-- due: the rows a claim would try, after it was rejected.
-- in:  $1 rows wanted int, $2 and $3 not used (name text, token int8), $4 ids to leave out
-- out: id, in the order asked for
--
-- It locks nothing: the claims of parts that follow do. It has the parameters of a claim, so that conditions count alike.

select {alias}.{id} as id
from {namespace}.{table} as {alias}
where {alias}.{state} in ('queued', 'errored')
  and ({alias}.{process_after} is null or {alias}.{process_after} <= now())
  and {alias}.{cancel} is not true
  and ($2::text is null or $3::int8 is null)
  and {alias}.{id} <> all($4::pg_catalog.{id_type}[])/*<where>*/
order by /*<order>*/{alias}.{id}
limit $1::int
