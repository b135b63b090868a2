-- trigger: wake the nodes that work on a table when it gets work.
--
-- An insert wakes once per statement. An update wakes only for rows that can be claimed now and could not before:
-- claims, heartbeats and acks are updates too, and need no wake-up.

create or replace function {namespace}.{function}() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $howdah$
begin
    perform pg_notify(tg_argv[0], '');
    return null;
end $howdah$;

create or replace trigger howdah_insert after insert on {namespace}.{table}
for each statement execute function {namespace}.{function}({'channel'});

create or replace trigger howdah_update after update on {namespace}.{table}
for each row
when (new.{state} in ('queued', 'errored')
    and (new.{process_after} is null or new.{process_after} <= clock_timestamp())
    and (old.{state} not in ('queued', 'errored') or old.{process_after} is distinct from new.{process_after}))
execute function {namespace}.{function}({'channel'});
