-- accept_claim: remember the number of a worker's claim, unless a newer claim of the same store came before it.
-- in:  $1 node int, $2 store, $3 number int8, $4 tokens the worker holds int8[], or null if nothing is to be taken back
-- out: tokens it was given by older claims and does not hold int8[]; no row when the claim is older, or the worker is gone
--
-- A claim takes its lease after its number is accepted. So a lease that this statement sees and whose claim were newer would
-- mean that the newer number is there too, and then this one is refused. The caller releases the tokens afterwards: they
-- cannot become anybody else's. Not worth a flush to disk: a crash that forgets the number forgets the lease after it.

with accepted as (
    update {schema}.node n
    set claims = n.claims || jsonb_build_object($2::text, $3::int8)
    from set_config('synchronous_commit', 'off', true)
    where n.id = $1 and n.remote and n.stopped_at is null and coalesce((n.claims ->> $2::text)::int8, 0) < $3::int8
    returning n.id
)
select
    case
        when $4::int8[] is null then '{}'
        when $2::text = 'jobs' then array(
            select l.token from {schema}.lease l
            where l.node = a.id and not l.token = any($4::int8[]))
        else array(
            select l.token from {schema}.row_lease l
            where l.node = a.id and l.store = $2::text and not l.token = any($4::int8[]))
    end as unheard
from accepted a
