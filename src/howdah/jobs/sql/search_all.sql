-- search_all: look through the newest jobs below an id for those that fit.
-- in:  $1 before int8, $2 jobs to look at int, $3 queue, $4 kind (each text or null), $5, $6 enqueued from and to,
--      $7, $8 finished from and to (each timestamptz or null), $9 text or null, $10 only those that succeeded bool, $11 most int
-- out: looked (at how many), lowest (id looked at), ids of those that fit, newest first, at most $11
--
-- Goes down the ids, whatever statistics say of the filters: they are in no WHERE. What job says is asked first; only a
-- job that fits so far is looked up in done. Those that succeeded begin at the newest job that ended, so that a backlog above
-- it is not looked at.
--
-- Arguments with a secret among them are not searched: who may look could find it letter by letter.

with looked as materialized (
    select j.id,
        case
            when j.queue <> $3 or j.kind <> $4 or j.enqueued_at < $5 or j.enqueued_at >= $6 then false
            when $9::text is null and $7::timestamptz is null and $8::timestamptz is null and not $10::boolean then true
            else coalesce(
                (select (d.state = 'd' or not $10)
                    and coalesce(d.finished_at >= $7, true)
                    and coalesce(d.finished_at < $8, true)
                    and ($9 is null or strpos(d.error, $9) > 0 or strpos(case when strpos(j.meta::text, 'howdah.secrets') > 0 then '' else j.args::text end, $9) > 0) is true
                 from {schema}.done d where d.id = j.id offset 0),
                not $10 and $7 is null and $8 is null
                and (strpos(case when strpos(j.meta::text, 'howdah.secrets') > 0 then '' else j.args::text end, $9) > 0
                    or exists (select from {schema}.attempt a
                               where a.id = j.id and strpos(concat_ws(': ', a.error, a.message), $9) > 0 offset 0)))
        end as fits
    from {schema}.job j
    where j.id <= case when $10 then (select max(d.id) from {schema}.done d where d.id < $1) else $1 - 1 end
    order by j.id desc
    limit $2
)
select count(*) as looked, min(id) as lowest,
    coalesce((array_agg(id order by id desc) filter (where fits))[1:$11::int], '{}') as ids
from looked
