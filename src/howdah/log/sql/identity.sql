-- identity: which log this is: of which server, and of which run of it.
-- out: system, timeline, run (null: no node has looked at the log in this run)

select system, timeline, run from {schema}.log_identity()
