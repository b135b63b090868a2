-- hold: leave a kind alone for a while.
-- in:  $1 kind, $2 seconds float8, $3 reason

insert into {schema}.hold as h (kind, until, reason)
values ($1, clock_timestamp() + $2::float8 * interval '1 second', $3)
on conflict (kind) do update set until = greatest(h.until, excluded.until), reason = excluded.reason
