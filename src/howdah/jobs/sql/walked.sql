-- walked: how many entries of the index a claim reads before the first job that it may take, dead ones included.
-- in:  $1 queues text[], $2 kinds text[]
-- out: entries int8; 0 if the server does not count
--
-- Each part needs the number of the one before it, so that they are read in this order. A claim cannot count itself: when
-- it finds nothing, it has no row to say it in.

select last.entries - first.entries as entries
from (
    select coalesce(pg_stat_get_xact_tuples_returned({'schema.ready_order'}::regclass), 0) as entries offset 0
) first
cross join lateral (
    select count(head.rid) + 0 * first.entries as heads
    from unnest($1::text[]) q
    cross join lateral (select distinct l.priority from {schema}.lane l where l.queue = q) lane
    cross join lateral (
        select r.rid
        from {schema}.ready r
        where r.queue = q
          and r.priority = lane.priority
          and r.kind = any($2::text[])
        order by r.rid
        limit 1
    ) head
    offset 0
) walk
cross join lateral (
    select coalesce(pg_stat_get_xact_tuples_returned({'schema.ready_order'}::regclass), 0) + 0 * walk.heads as entries offset 0
) last
