-- nodes: how many are at work.
-- out: nodes

select count(*) from {schema}.node where state <> 'offline'
