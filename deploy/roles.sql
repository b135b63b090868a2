-- roles: who may do what in the schema `howdah`, and nothing beyond it.
--
--   howdah_owner     owns the schema: `howdah migrate`, `howdah token`
--   howdah_worker    a node with a database: `howdah worker`, consumers, admin commands
--   howdah_fleet     the control plane: `howdah serve`
--   howdah_enqueue   calls howdah.enqueue(…); cannot even read
--   howdah_read      looks: views, metrics, autoscalers; never sees the hash of a token
--
-- Run it as a superuser before the first `howdah migrate`, then, as a superuser or as howdah_owner, after every one: new
-- tables get their grants then. It may run as often as you like. A schema that somebody else made changes hands, which
-- only a superuser can do. The roles have no passwords, so nobody can log in with one yet: `\password howdah_worker`.
--
-- Partitions are made and dropped while nodes run. The functions that do it work with the rights of the owner, so nobody
-- else needs to own a table. They fix their search_path, so nothing of the caller's can stand in for what they call.
--
-- Your own tables are yours to grant: `grant select, update on app.uploads to howdah_worker, howdah_fleet`. To see how old
-- other roles' transactions are: `grant pg_read_all_stats to howdah_worker`. Another schema: replace the word below.

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

    -- What the owner's rights stand behind must be the owner's, not a superuser's.
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

    -- Partitions come and go, jobs are enqueued and the audit is pruned with the rights of the owner.
    alter function howdah.grow security definer;
    alter function howdah.prune_partition security definer;
    alter function howdah.enqueue security definer;
    alter function howdah.prune_audit security definer;

    grant execute on function howdah.enqueue to howdah_enqueue;
    grant execute on all functions in schema howdah to howdah_worker, howdah_fleet;
    grant execute on function howdah.frontier, howdah.channel, howdah.log_channel, howdah.part_of, howdah.job_at, howdah.fingerprint
        to howdah_read;
    grant execute on function howdah.begin_run, howdah.server_run, howdah.check_run, howdah.log_identity, howdah.barred, howdah.declarers
        to howdah_read;

    grant select, insert, update, delete on all tables in schema howdah to howdah_worker, howdah_fleet;
    grant select on all tables in schema howdah to howdah_read;
    grant select on all sequences in schema howdah to howdah_worker, howdah_fleet, howdah_read;

    -- These are drawn from; identity columns need no right for that. Only signs are set: whoever could set the others could
    -- give out an id, or the token of a lease, a second time.
    grant usage on sequence howdah.job_id, howdah.arrival, howdah.token to howdah_worker, howdah_fleet;
    for each in
        select relname as name from pg_class
        where relnamespace = 'howdah'::regnamespace and relkind = 'S' and relname ~ '^sign_\d+$'
    loop
        execute format('grant update on sequence howdah.%I to howdah_worker, howdah_fleet', each.name);
    end loop;
    grant update on sequence howdah.log_exclusive to howdah_worker;

    -- The history of the schema is the owner's to write; events and the audit are never changed; tokens are made by the owner.
    revoke insert, update, delete on howdah.migration, howdah.jobs from howdah_worker, howdah_fleet;
    revoke update, delete on howdah.event from howdah_worker;
    revoke update, delete, truncate on howdah.audit from howdah_worker, howdah_fleet;
    revoke insert, update, delete on howdah.event, howdah.consumer, howdah.share, howdah.checkpoint, howdah.parked, howdah.leader,
        howdah.declaration from howdah_fleet;
    revoke insert, update, delete on howdah.server_run from howdah_worker, howdah_fleet;
    revoke insert, update, delete on howdah.webhook, howdah.webhook_declaration, howdah.notice, howdah.queue_mark,
        howdah.queue_stuck from howdah_fleet;
    revoke all on howdah.api_token, howdah.login from howdah_worker;
    revoke insert, update, delete on howdah.api_token from howdah_fleet;
    grant update (used_at) on howdah.api_token to howdah_fleet;
    revoke update on howdah.login from howdah_fleet;

    -- Whoever looks sees every column but the hashes.
    for each in select unnest(array['api_token', 'login', 'node']) as name loop
        select string_agg(quote_ident(attname), ', ' order by attnum) into columns from pg_attribute
        where attrelid = format('howdah.%I', each.name)::regclass and attnum > 0 and not attisdropped
          and attname not in ('hash', 'credential');
        execute format('revoke select on howdah.%I from howdah_read', each.name);
        execute format('grant select (%s) on howdah.%I to howdah_read', columns, each.name);
    end loop;
end $$;

commit;
