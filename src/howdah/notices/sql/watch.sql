-- watch: look for queues in which something waits and is not taken; safe on every node at once.
-- out: how many webhooks were told of one

select {schema}.watch_queues()
