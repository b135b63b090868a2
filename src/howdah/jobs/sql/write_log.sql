-- write_log: store log lines and progress of a running job, if the node holds its lease.
-- in:  $1 node int, $2 job int8, $3 token int8, $4 stream, $5 lines text[], $6 progress float8 or null, $7 note, $8 most lines
-- out: held (whether the node holds the lease), kept (lines)

with mine as (
    select u.attempt
    from {schema}.lease l
    cross join lateral unnest(l.los, l.his, l.attempts) u(lo, hi, attempt)
    where l.token = $3 and l.node = $1 and $2 >= u.lo and $2 < u.hi
      and not exists (select from {schema}.done d where d.id = $2)
      and not exists (select from {schema}.gone g where g.token = $3 and g.id = $2)
    limit 1
),
room as (
    select greatest(0, $8::int - count(*))::int as left_over from {schema}.job_log g, mine where g.id = $2 and g.attempt = mine.attempt
),
kept as (
    insert into {schema}.job_log (id, attempt, stream, line)
    select $2, mine.attempt, $4, t.line
    from mine, room, unnest($5::text[]) with ordinality t(line, place)
    where t.place <= room.left_over
    order by t.place
    returning 1
),
progressed as (
    insert into {schema}.progress as p (id, token, share, note)
    select $2, $3, $6, $7 from mine where $6::float8 is not null
    on conflict (id) do update set token = excluded.token, share = excluded.share, note = excluded.note, reported_at = clock_timestamp()
)
select exists (select from mine) as held, (select count(*) from kept) as kept
