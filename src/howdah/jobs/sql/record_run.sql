-- record_run: store the start or the end of a run, if the node holds the lease of its job.
-- in:  $1 node int, $2 job int8, $3 token int8, $4 state, $5 spec json or null, $6 code, $7 result json or null
-- out: held (whether the node holds the lease)
--
-- A released attempt starts again under the same number. Only the node of a run can end it.

with mine as (
    select u.attempt, j.kind
    from {schema}.lease l
    cross join lateral unnest(l.los, l.his, l.attempts) u(lo, hi, attempt)
    join {schema}.job j on j.id = $2
    where l.token = $3 and l.node = $1 and $2 >= u.lo and $2 < u.hi
      and not exists (select from {schema}.done d where d.id = $2)
      and not exists (select from {schema}.gone g where g.token = $3 and g.id = $2)
    limit 1
),
noted as (
    insert into {schema}.run as r (job, attempt, kind, node, spec, state, code, result, finished_at)
    select $2, mine.attempt, mine.kind, $1, coalesce($5::json, 'null'), $4, $6, $7::json,
        case when $4 <> 'running' then clock_timestamp() end
    from mine
    on conflict (job, attempt) do update set
        node = excluded.node,
        spec = case when excluded.state = 'running' then excluded.spec else r.spec end,
        state = excluded.state,
        code = excluded.code,
        result = excluded.result,
        started_at = case when excluded.state = 'running' then clock_timestamp() else r.started_at end,
        finished_at = excluded.finished_at
    where excluded.state = 'running' or (r.state in ('running', 'lost') and r.node = excluded.node)
)
select exists (select from mine) as held
