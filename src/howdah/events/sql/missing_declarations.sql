-- missing_declarations: consumers whose declaration is missing or differs on this server (a promoted standby may lack the newest ones).
-- in:  $1 declared json text: name to the digest of its filter
-- out: name

select n.key as name
from json_each_text($1::text::json) n
where not exists (select from {schema}.declaration d where d.consumer = n.key and d.digest = n.value offset 0)
