-- consumed: whether there is any consumer.
-- out: consumed

select exists (select from {schema}.consumer) as consumed
