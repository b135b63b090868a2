-- declare: declare a webhook, or repeat the declaration. Of several declarations, the newest that nodes still repeat is current.
-- in:  $1 name, $2 host, $3 events text[], $4 queues text[] or null, $5 kinds text[] or null, $6 stuck after seconds float8,
--      $7 since, as returned before timestamptz; null: the process has just started
-- out: since (when this declaration was first made), current (true if it is the current one)

select since, current from {schema}.declare_webhook($1, $2, $3::text[], $4::text[], $5::text[], $6::float8, $7::timestamptz)
