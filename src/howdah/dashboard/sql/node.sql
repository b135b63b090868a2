-- node: what a node says of itself beyond the list.
-- in:  $1 id int
-- out: remote, labels, tables, leaving, consumers (json or null)

select n.remote, n.labels, n.tables, n.leaving, n.consumers from {schema}.node n where n.id = $1
