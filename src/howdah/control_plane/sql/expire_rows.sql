-- expire_rows: end leases on rows that were not renewed in time. Safe in every replica.
-- in:  $1 name of the table, $2 seconds float8, $3 most int
--      $4 the server's time after which none is ended float8 (seconds since 1970), see note_contact
-- out: token, ids

delete from {schema}.row_lease
where token = any(array(
    select l.token from {schema}.row_lease l
    where l.store = $1 and l.heard_at < clock_timestamp() - $2::float8 * interval '1 second'
      and extract(epoch from clock_timestamp()) <= $4::float8
    limit $3::int
    for update skip locked))
returning token, ids
