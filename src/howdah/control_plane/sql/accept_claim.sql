-- accept_claim: store the number of a worker's claim, unless a newer claim of the same store came before it.
-- in:  $1 node int, $2 store, $3 number int8, $4 tokens the worker holds int8[], or null to release nothing
-- out: unconfirmed: tokens of older claims that it does not hold int8[]; no row if the claim is older or the worker is gone
--
-- A claim creates its lease after its number is accepted. If this statement sees the lease of a newer claim, it sees the
-- newer number too and rejects this claim. The caller releases the tokens afterwards: they are never given to another
-- worker. Commits asynchronously: a crash that loses the number also loses the lease after it.

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
    end as unconfirmed
from accepted a
