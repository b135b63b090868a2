-- hold_checkpoints: lock the checkpoints of all consumers until the transaction ends, so that consumers fall behind.

select consumer from {schema}.checkpoint order by consumer, part for update
