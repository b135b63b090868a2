-- reshape: change the number of partitions of a consumer, as far as possible now. No row: another term has begun.
-- in:  $1 consumer, $2 partitions, $3 the leader int, $4 its term timestamptz
-- out: whether it is done

with term as materialized (
    select from {schema}.leader l where l.node = $3::int and l.since = $4::timestamptz for share
)
select {schema}.reshape($1, $2::int) as done from term
