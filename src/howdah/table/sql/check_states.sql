-- check_states: the states that a constraint of the table rejects.
-- in:  $1 states text[]
-- out: state

select s.state
from unnest($1::text[]) with ordinality s(state, place)
cross join lateral (
    -- in a scope of its own, where names in the condition can only be the column
    select (/*<condition>*/true/*</condition>*/) as holds
    from (select s.state::{state_namespace}.{state_type} as {state}) as row
) r
where not r.holds
order by s.place
