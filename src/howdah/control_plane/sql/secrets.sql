-- secrets: the arguments of the given jobs that have secret ones.
-- in:  $1 jobs int8[]
-- out: id, args, meta

select j.id, j.args, j.meta
from unnest($1::int8[]) p(id)
cross join lateral (
    select b.id, b.args, b.meta
    from {schema}.job b
    where b.id = p.id
      and b.meta::text like '%"howdah.secrets"%'
    offset 0
) j
