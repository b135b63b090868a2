-- identity: the server of this log, and the current run of that server.
-- out: system, timeline, run (null: no node has looked at the log in this run)

select system, timeline, run from {schema}.log_identity()
