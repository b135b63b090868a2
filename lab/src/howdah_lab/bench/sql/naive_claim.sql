-- naive_claim: one row, as worker loops written by hand take it.
-- out: id

update {schema}.bench_row
set state = 'processing', started_at = now(), last_heartbeat_at = now()
where id = (
    select id from {schema}.bench_row
    where state = 'queued' and (process_after is null or process_after <= now())
    order by id
    limit 1
    for update skip locked)
returning id
