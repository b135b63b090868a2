-- count_ended: estimated number of finished rows, from the last ANALYZE.
-- in:  $1 oid int8, $2 column of the state text
-- out: bytes (of the table), states, rows (of each, about; both null before the first ANALYZE)

with leaf as (
    select c.oid, n.nspname, c.relname, c.reltuples::float8 as reltuples
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'f')
      and (c.oid = $1::int8::oid or c.oid in (select p.relid from pg_catalog.pg_partition_tree($1::int8::oid::regclass) p))
),
seen as (
    select v.state, sum(leaf.reltuples * v.share) as rows
    from leaf
    join pg_catalog.pg_stats s on s.schemaname = leaf.nspname and s.tablename = leaf.relname and not s.inherited
    cross join lateral unnest(s.most_common_vals::text::text[], s.most_common_freqs::float8[]) v(state, share)
    where s.attname = $2::text
      and leaf.reltuples >= 0
    group by v.state
)
select (select coalesce(sum(pg_catalog.pg_relation_size(oid)), 0)::int8 from leaf) as bytes,
    (select array_agg(state order by state) from seen) as states,
    (select array_agg(round(rows)::int8 order by state) from seen) as rows
