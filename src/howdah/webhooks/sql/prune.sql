-- prune: delete webhooks that no node declares any more, and notices that are too old or too many.
-- in:  $1 seconds float8, $2 notices of one webhook int
-- out: notices dropped

with gone as (
    delete from {schema}.webhook h where h.seen_at < now() - $1::float8 * interval '1 second' returning name
),
episodes as (
    delete from {schema}.queue_stuck s
    where s.webhook in (select name from gone) or not exists (select from {schema}.webhook h where h.name = s.webhook)
),
dropped as (
    delete from {schema}.notice n
    where n.at < now() - $1::float8 * interval '1 second'
       or n.webhook in (select name from gone)
       or n.id in (
            select x.id
            from (select o.id, row_number() over (partition by o.webhook order by o.id desc) as place from {schema}.notice o) x
            where x.place > $2::int)
    returning 1
)
select count(*) from dropped
