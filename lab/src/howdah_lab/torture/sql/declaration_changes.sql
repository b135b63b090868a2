-- declaration_changes: every change of the current declaration of the consumer widened.
-- out: id, types, reached (the checkpoint at that moment)

select id, types, reached from {run_schema}.declaration_change where consumer = 'widened' order by id
