-- log: write the execution logs of running attempts.
-- in:  $1 ids, $2 tokens int8[], $3 entries: for each row a JSON array as text
-- out: id, token: those held; locked (true: another transaction has locked the row, nothing was written)
--
-- A row that another transaction has locked is passed over, never waited for; in the transaction of a handler, where no
-- other row waits, `wait` takes away SKIP LOCKED.

with told as materialized (
    select id, token, entries
    from unnest($1::pg_catalog.{id_type}[], $2::int8[], $3::text[]) told(id, token, entries)
),
found as materialized (
    select t.{id} as id, t.{lease_token} as token
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
      and t.{state} = 'processing'
    order by t.{id}
    for no key update/*<wait>*/ skip locked/*</wait>*/
),
missed as materialized (
    select t.{id} as id, t.{lease_token} as token
    from {namespace}.{table} as t
    where t.{id} = any(array(select told.id from told where told.id not in (select found.id from found)))
      and t.{state} = 'processing'
),
ours as materialized (
    select told.id, told.token, told.entries, found.id is not null as held
    from told
    left join found on found.id = told.id and found.token = told.token
),
kept as (
    update {namespace}.{table} as t
    set {execution_logs} = array(select e.entry from json_array_elements(ours.entries::json) with ordinality e(entry, place) order by e.place)::pg_catalog.{logs_type}
    from ours
    where t.{id} = any(array(select id from ours where held))
      and t.{id} = ours.id
      and ours.held
)
select id, token, false as locked from ours where held
union all
select id, token, true from missed
