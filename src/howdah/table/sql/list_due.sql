-- list_due: the due rows of a table in which other rows are scheduled for later.
-- in:  $1 rows wanted of each kind int, $2 and $3 not used (name text, token int8), $4 ids to leave out
-- out: ids in the order asked for; null if no row is scheduled for later
--
-- It reads the due rows only, in an index on process_after: a claim in its own order would read all those that are
-- scheduled for later as well. The order by makes the planner choose that index whatever the statistics say.
-- It locks nothing. It has the parameters of a claim, so that conditions count alike.

select case when exists (
        select from {namespace}.{table} as {alias}
        where {alias}.{state} in ('queued', 'errored')
          and {alias}.{process_after} > now()
    )
    then array(
        select {alias}.{id}
        from (
            (
                select {alias}.*
                from {namespace}.{table} as {alias}
                where {alias}.{state} in ('queued', 'errored')
                  and {alias}.{process_after} is null
                  and {alias}.{cancel} is not true
                  and ($2::text is null or $3::int8 is null)
                  and {alias}.{id} <> all($4::pg_catalog.{id_type}[])/*<where>*/
                order by {alias}.{process_after}
                limit $1::int
            )
            union all
            (
                select {alias}.*
                from {namespace}.{table} as {alias}
                where {alias}.{state} in ('queued', 'errored')
                  and {alias}.{process_after} <= now()
                  and {alias}.{cancel} is not true
                  and {alias}.{id} <> all($4::pg_catalog.{id_type}[])/*<where>*/
                order by {alias}.{process_after}
                limit $1::int
            )
        ) as {alias}
        order by /*<order>*/{alias}.{id}
    )
end as ids
