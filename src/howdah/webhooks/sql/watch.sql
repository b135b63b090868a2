-- watch: detect stuck queues: jobs wait and none is claimed. Safe on every node at once.
-- out: number of notices written

select {schema}.watch_queues()
