-- announce_sleep: announce that a worker sleeps, by the sleep markers of its queues.
-- in:  $1 queues text[] or null for all, $2 milliseconds the announcement lasts; 0 sets no marker
-- out: a count, not used
--
-- It commits asynchronously: an announcement lost in a crash is made again by the node that reconnects. What may have been
-- enqueued before it is read by statements that follow: a snapshot of this one would be too old.

select count(setval(m.marker, m.until)) as markers
from set_config('synchronous_commit', 'off', true)
cross join lateral (
    select format('%I.sleep_marker_%s', {'schema'}, n.number)::regclass as marker,
        (extract(epoch from clock_timestamp()) * 1000)::int8 + $2::int as until
    from (
        select distinct hashtext(q) & 15 from unnest($1::text[]) q
        union all
        select generate_series(0, 15) where $1 is null
    ) n(number)
    offset 0
) m
where $2 > 0
  and coalesce(pg_sequence_last_value(m.marker), 0) < m.until - $2 / 2
