-- count_nodes: the nodes by state.
-- out: state, nodes

select n.state, count(*) as nodes
from {schema}.node n
group by n.state
