-- Roles and privileges in the schema `howdah`. Nothing outside of it is granted.
--
--   howdah_owner     owns the schema: `howdah migrate`, `howdah token`
--   howdah_worker    a node with a database: `howdah worker`, consumers, admin commands
--   howdah_fleet     the control plane: `howdah serve`
--   howdah_enqueue   may call howdah.enqueue(…) only; cannot read
--   howdah_read      read-only: views, metrics, autoscalers; cannot read the hashes of tokens
--
-- Run this file as a superuser before the first `howdah migrate`, and after every migration as a superuser or as
-- howdah_owner, to grant privileges on new tables. It can be run repeatedly. A schema that another role created gets
-- howdah_owner as its new owner, which only a superuser can do. The roles have no passwords and cannot log in until you
-- set one: `\password howdah_worker`.
--
-- Partitions are created and dropped while nodes run. The functions for this run with the privileges of the owner, so that
-- no other role needs to own a table. They set their search_path, so that a caller cannot replace what they call.
--
-- Grant privileges on your own tables yourself: `grant select, update on app.uploads to howdah_worker, howdah_fleet`. To
-- measure the age of other roles' transactions: `grant pg_read_all_stats to howdah_worker`. For another schema, replace the
-- name below.

begin;

do $$
declare
    role text;
begin
    foreach role in array array['howdah_owner', 'howdah_worker', 'howdah_fleet', 'howdah_enqueue', 'howdah_read'] loop
        if to_regrole(role) is null then
            execute format('create role %I login nosuperuser nocreatedb nocreaterole noreplication nobypassrls', role);
        end if;
    end loop;
    if not has_database_privilege('howdah_owner', current_database(), 'create') then
        execute format('grant create on database %I to howdah_owner', current_database());
    end if;
end $$;

-- Everything below needs the schema.
do $$
declare
    each    record;
    columns text;
begin
    if to_regnamespace('howdah') is null then
        raise notice 'there is no schema howdah yet: run `howdah migrate` as howdah_owner, then this file again';
        return;
    end if;

    -- Functions that run with the owner's privileges must belong to howdah_owner, not to a superuser.
    for each in
        select format('schema %I', nspname) as what from pg_namespace
        where nspname = 'howdah' and nspowner <> 'howdah_owner'::regrole
        union all
        select format('%s %I.%I', case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'c' then 'type' else 'table' end, 'howdah', c.relname)
        from pg_class c
        where c.relnamespace = 'howdah'::regnamespace and c.relkind in ('r', 'p', 'v', 'S', 'c') and c.relowner <> 'howdah_owner'::regrole
          and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i' and c.relkind = 'S')
        union all
        select format('function %s', p.oid::regprocedure) from pg_proc p
        where p.pronamespace = 'howdah'::regnamespace and p.proowner <> 'howdah_owner'::regrole
    loop
        execute format('alter %s owner to howdah_owner', each.what);
    end loop;

    revoke all on schema howdah from public;
    revoke all on all tables in schema howdah from public, howdah_worker, howdah_fleet, howdah_enqueue, howdah_read;
    revoke all on all sequences in schema howdah from public, howdah_worker, howdah_fleet, howdah_enqueue, howdah_read;
    revoke all on all functions in schema howdah from public, howdah_worker, howdah_fleet, howdah_enqueue, howdah_read;
    grant usage on schema howdah to howdah_worker, howdah_fleet, howdah_enqueue, howdah_read;

    -- Creating and dropping partitions, pruning, and enqueueing run with the privileges of the owner.
    alter function howdah.grow security definer;
    alter function howdah.prune_partition security definer;
    alter function howdah.prune_rows security definer;
    alter function howdah.enqueue security definer;
    alter function howdah.prune_audit security definer;

    grant execute on function howdah.enqueue to howdah_enqueue;
    grant execute on all functions in schema howdah to howdah_worker, howdah_fleet;
    grant execute on function howdah.frontier, howdah.channel, howdah.log_channel, howdah.partition_of, howdah.job_at,
        howdah.fingerprint to howdah_read;
    grant execute on function howdah.begin_run, howdah.server_run, howdah.check_run, howdah.log_identity,
        howdah.declares_other_filter, howdah.declarers to howdah_read;

    if to_regproc('howdah.enqueue_own') is not null then                -- since 0.3
        revoke execute on function howdah.enqueue_own from howdah_fleet;
    end if;
    if to_regproc('howdah.jobs_of') is not null then                    -- since 0.3
        grant execute on function howdah.jobs_of, howdah.has_many_partitions to howdah_read;
    end if;
    if to_regclass('howdah.upkeep') is not null then                    -- since 0.3; parts of grow, prune_partition and prune_rows
        revoke execute on function howdah.await_unlocked, howdah.copy_kept, howdah.detach_partition, howdah.drop_pruned,
            howdah.index_finished, howdah.is_indexed, howdah.lock_holders, howdah.note_blocked, howdah.prunable
            from howdah_worker, howdah_fleet;
    end if;

    grant select, insert, update, delete on all tables in schema howdah to howdah_worker, howdah_fleet;
    grant select on all tables in schema howdah to howdah_read;
    grant select on all sequences in schema howdah to howdah_worker, howdah_fleet, howdah_read;

    -- Values are drawn from these; identity columns need no privilege for that. setval is allowed on the sleep markers only:
    -- a role that could set the other sequences could make an id, or the token of a lease, come twice.
    grant usage on sequence howdah.job_id, howdah.arrival, howdah.token to howdah_worker, howdah_fleet;
    for each in
        select relname as name from pg_class
        where relnamespace = 'howdah'::regnamespace and relkind = 'S' and relname ~ '^sleep_marker_\d+$'
    loop
        execute format('grant update on sequence howdah.%I to howdah_worker, howdah_fleet', each.name);
    end loop;
    grant update on sequence howdah.log_exclusive to howdah_worker;

    -- Only the owner writes the migration history and creates tokens; events and the audit log are append-only.
    revoke insert, update, delete on howdah.migration, howdah.jobs from howdah_worker, howdah_fleet;
    revoke update, delete on howdah.event from howdah_worker;
    revoke update, delete, truncate on howdah.audit from howdah_worker, howdah_fleet;
    revoke insert, update, delete on howdah.event, howdah.consumer, howdah.consumer_partition, howdah.checkpoint, howdah.parked,
        howdah.leader, howdah.declaration from howdah_fleet;
    revoke insert, update, delete on howdah.server_run from howdah_worker, howdah_fleet;
    if to_regclass('howdah.upkeep') is not null then                    -- since 0.3
        revoke insert, update, delete on howdah.upkeep from howdah_worker, howdah_fleet;
    end if;
    revoke insert, update, delete on howdah.webhook, howdah.webhook_declaration, howdah.notice, howdah.queue_mark,
        howdah.queue_stuck from howdah_fleet;
    revoke all on howdah.api_token, howdah.login from howdah_worker;
    revoke insert, update, delete on howdah.api_token from howdah_fleet;
    grant update (used_at) on howdah.api_token to howdah_fleet;
    revoke update on howdah.login from howdah_fleet;

    -- The read-only role may read every column except hashes.
    for each in select unnest(array['api_token', 'login', 'node']) as name loop
        select string_agg(quote_ident(attname), ', ' order by attnum) into columns from pg_attribute
        where attrelid = format('howdah.%I', each.name)::regclass and attnum > 0 and not attisdropped
          and attname not in ('hash', 'credential');
        execute format('revoke select on howdah.%I from howdah_read', each.name);
        execute format('grant select (%s) on howdah.%I to howdah_read', columns, each.name);
    end loop;
end $$;

commit;
