-- 0006: the fleet: rows of tables belong to their worker.

-- Which worker without a database holds which rows of the user's tables. A claim over HTTP is noted here before it is
-- answered, a heartbeat says it again, and what nobody spoke of for as long as a lease lasts is over.
create table {schema}.row_lease (
    token    bigint primary key,
    node     int not null,
    store    text not null,                                 -- the name of the table
    ids      json not null,                                 -- the keys of its rows
    heard_at timestamptz not null default clock_timestamp()
) with (fillfactor = 70);
create index row_lease_node on {schema}.row_lease (node);

-- When workers without a database are silent for too long their control plane knows, and says so. A day later it is
-- itself gone, and they must not look alive for ever.
create or replace function {schema}.reset(most int default 100, out leases int, out requeued bigint, out ended bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    taken bigint[];
begin
    perform {schema}.refuse_snapshots();
    taken := array(select token from {schema}.lease where expires_at < clock_timestamp() order by token limit most for update skip locked);
    leases := cardinality(taken);
    requeued := 0;
    ended := 0;
    if leases > 0 then
        select b.requeued, b.ended into requeued, ended
        from {schema}.hand_back(taken, true, 'lease expired: the node stopped renewing it') b;
    end if;
    update {schema}.node n set state = 'offline', running = 0, stopped_at = coalesce(n.stopped_at, n.beat_at)
    where n.state <> 'offline'
      and n.beat_at < clock_timestamp() - case when n.credential is null then interval '90 seconds' else interval '1 day' end;
end $howdah$;
