-- match: which of these jobs fit.
-- in:  $1 ids int8[], $2 state 'd', 'f', 'c' or null, $3 queue, $4 kind (each text or null), $5, $6 enqueued from and to,
--      $7, $8 finished from and to (each timestamptz or null), $9 text or null, $10 fingerprint, or its MD5, text or null
-- out: id, newest first
--
-- OFFSET 0 keeps the probes probes: as joins they may read all of history.
--
-- Arguments with a secret among them are not searched: who may look could find it letter by letter.

select j.id
from unnest($1::int8[]) p(id)
cross join lateral (select * from {schema}.job j where j.id = p.id offset 0) j
left join lateral (select * from {schema}.done d where d.id = j.id offset 0) d on true
where ($2::text is null or d.state = $2::"char")
  and ($3::text is null or j.queue = $3)
  and ($4::text is null or j.kind = $4)
  and ($5::timestamptz is null or j.enqueued_at >= $5)
  and ($6::timestamptz is null or j.enqueued_at < $6)
  and ($7::timestamptz is null or d.finished_at >= $7)
  and ($8::timestamptz is null or d.finished_at < $8)
  and ($9::text is null
    or strpos(case when strpos(j.meta::text, 'howdah.secrets') > 0 then '' else j.args::text end, $9) > 0
    or strpos(d.error, $9) > 0
    or d.id is null and exists (
        select from {schema}.attempt a
        where a.id = j.id and strpos(concat_ws(': ', a.error, a.message), $9) > 0 offset 0))
  and ($10::text is null or $10 in ({schema}.fingerprint(d.error), md5({schema}.fingerprint(d.error))))
order by j.id desc
