-- reshape: bring a consumer to another number of partitions, as far as it goes now.
-- in:  $1 consumer, $2 partitions
-- out: whether it is done

select {schema}.reshape($1, $2::int) as done
