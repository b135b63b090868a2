-- record_rejections: store rows whose update the table rejects, for the doctor.
-- in:  $1 table text, quoted, $2 ids text[], $3 acts text[], $4 messages text[], $5 refusals to keep int
-- out: nothing

with gone as (
    delete from {schema}.table_refusal r
    where r.relation = $1::text
      and (r.seen_at < clock_timestamp() - interval '1 day'
          or (r.row_id, r.act) in (
              select o.row_id, o.act from {schema}.table_refusal o
              where o.relation = $1::text
              order by o.seen_at desc
              offset $5::int))
      and (r.row_id, r.act) not in (select id, act from unnest($2::text[], $3::text[]) told(id, act))
)
insert into {schema}.table_refusal (relation, row_id, act, message)
select distinct on (id, act) $1::text, id, act, message
from unnest($2::text[], $3::text[], $4::text[]) told(id, act, message)
order by id, act
on conflict (relation, row_id, act) do update
set message = excluded.message, seen_at = clock_timestamp()
