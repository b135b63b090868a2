-- still_open: which of these transactions are still open.
-- in:  $1 transaction ids int8[]
-- out: those still open

select array(
    select x from unnest($1::int8[]) x
    where not pg_visible_in_snapshot(x::text::xid8, pg_current_snapshot())) as still
