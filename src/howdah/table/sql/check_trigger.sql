-- check_trigger: whether a trigger of a table notifies this channel.
-- in:  $1 oid int8, $2 channel text
-- out: found

select exists (
    select
    from pg_catalog.pg_trigger t
    where t.tgrelid = $1::int8::oid
      and t.tgenabled in ('O', 'A')
      and position(convert_to($2::text, 'UTF8') in t.tgargs) > 0
) as found
