-- read_records: read the records of claimed rows through the view.
-- in:  $1 ids
-- out: id, record as JSON
--
-- After the claim and not within it, so that records show the row as it is now.

select {view_alias}.{id} as id,
    (select row_to_json(r.*) from (select /*<record>*/{view_alias}.*/*</record>*/) r)::text as record
from {view_namespace}.{view} as {view_alias}
where {view_alias}.{id} = any($1::pg_catalog.{id_type}[])
