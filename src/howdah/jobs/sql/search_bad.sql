-- search_bad: look through the newest jobs below an id that failed or were cancelled, for those that fit.
-- in:  $1 before int8, $2 jobs to look at int, $3 queue, $4 kind (each text or null), $5, $6 enqueued from and to,
--      $7, $8 finished from and to (each timestamptz or null), $9 text or null, $10 state 'f' or 'c', $11 most int,
--      $12 fingerprint, or its MD5, text or null
-- out: looked (at how many), lowest (id looked at), ids of those that fit, newest first, at most $11
--
-- `state <> 'd'` is what the partial index done_bad says, so history is not read.
--
-- Arguments with a secret among them are not searched: who may look could find it letter by letter.

with looked as materialized (
    select d.id,
        case
            when d.state <> $10::text::"char" or d.finished_at < $7 or d.finished_at >= $8 then false
            when $12::text is not null and ($12 in ({schema}.fingerprint(d.error), md5({schema}.fingerprint(d.error)))) is not true then false
            when $3::text is null and $4::text is null and $5::timestamptz is null and $6::timestamptz is null
                and ($9::text is null or strpos(d.error, $9) > 0) then true
            else exists (
                select from {schema}.job j
                where j.id = d.id
                  and ($3 is null or j.queue = $3)
                  and ($4 is null or j.kind = $4)
                  and ($5 is null or j.enqueued_at >= $5)
                  and ($6 is null or j.enqueued_at < $6)
                  and ($9 is null or strpos(d.error, $9) > 0 or strpos(case when strpos(j.meta::text, 'howdah.secrets') > 0 then '' else j.args::text end, $9) > 0)
                offset 0)
        end as fits
    from {schema}.done d
    where d.state <> 'd'
      and d.id < $1
    order by d.id desc
    limit $2
)
select count(*) as looked, min(id) as lowest,
    coalesce((array_agg(id order by id desc) filter (where fits))[1:$11::int], '{}') as ids
from looked
