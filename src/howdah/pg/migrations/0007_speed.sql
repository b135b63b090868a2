-- 0007: the same, quicker.

-- Ids for a bulk enqueue. As before, but when nobody drew one in between, which is nearly always, they are one run, and
-- need not be numbered and sorted to see it.
create or replace function {schema}.reserve(n int) returns table (lo bigint, hi bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
declare
    ids bigint[];
    key bigint := hashtextextended({'schema'} || ' reserve', 0);
begin
    perform pg_advisory_lock(key);
    begin
        ids := array(select nextval({'schema.job_id'}) from generate_series(1, n));
    exception when others or query_canceled then
        perform pg_advisory_unlock(key);
        raise;
    end;
    perform pg_advisory_unlock(key);
    if ids[n] - ids[1] = n - 1 then
        return query select ids[1], ids[n] + 1;
    else
        return query
            select min(v), max(v) + 1
            from (select v, v - row_number() over (order by v) as g from unnest(ids) v) x
            group by g order by 1;
    end if;
end $howdah$;
