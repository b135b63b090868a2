-- ahead: who comes before a job in its queue, by kind.
-- in:  $1 queue, $2 priority int2, $3 rid int8 (of a job that is due and not moved to the queue yet: the highest), $4 lo int8,
--      $5 due_at timestamptz (null for a job in the queue), $6 runs to look at int
-- out: kind, higher (jobs of higher priority), earlier (jobs of the same that came before), runs
--
-- A claim skips locked rows and held kinds, so they are not counted.

with open as materialized (
    select array(select k.transactionid from pg_locks k where k.locktype = 'transactionid' and k.granted) as ids
)
select kind, coalesce(sum(n) filter (where higher), 0)::int8 as higher,
    coalesce(sum(n) filter (where not higher), 0)::int8 as earlier, count(*) as runs
from (
    (select r.kind, r.hi - r.lo as n, true as higher
     from {schema}.ready r
     where r.queue = $1 and r.priority > $2::int2 and r.xmax <> all((select ids from open)::xid[])
     limit $6)
    union all
    (select r.kind, r.hi - r.lo, false
     from {schema}.ready r
     where r.queue = $1 and r.priority = $2::int2 and r.rid <= $3::int8 and (r.rid < $3::int8 or r.lo < $4::int8)
       and r.xmax <> all((select ids from open)::xid[])
     limit $6)
    union all
    (select l.kind, 1, l.priority > $2::int2
     from {schema}.later l
     where l.queue = $1
       and l.due_at <= statement_timestamp()
       and l.xmax <> all((select ids from open)::xid[])
       and (l.priority > $2::int2 or (l.priority = $2::int2 and l.due_at < $5::timestamptz))
     limit $6)
) runs
where not exists (select from {schema}.hold h where h.kind = runs.kind and h.until > clock_timestamp())
group by kind
