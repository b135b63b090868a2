"""Reads the complete definition of a schema from the system catalogues, so that two schemas can be compared."""

from __future__ import annotations

from typing import Any

NAMESPACE = "(select n.oid from pg_namespace n where n.nspname = $1)"
RELATION = f"c.relnamespace = {NAMESPACE}"

QUERIES = {
    "schema": f"""
        select n.nspname::text, n.nspowner::regrole::text, n.nspacl::text, obj_description(n.oid, 'pg_namespace')
        from pg_namespace n where n.oid = {NAMESPACE}""",
    "relation": f"""
        select c.relname::text, c.relkind::text, c.relpersistence::text, c.reloptions::text, c.relacl::text,
            c.relowner::regrole::text, c.relhastriggers, c.relhasrules, c.relhassubclass, c.relrowsecurity,
            c.relforcerowsecurity, c.relreplident::text, c.relispartition, c.relnatts, c.relchecks, c.reltablespace,
            (select a.amname::text from pg_am a where a.oid = c.relam),
            (select t.reloptions::text from pg_class t where t.oid = c.reltoastrelid), c.reltoastrelid > 0,
            pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid),
            (select i.inhparent::regclass::text from pg_inherits i where i.inhrelid = c.oid),
            obj_description(c.oid, 'pg_class')
        from pg_class c where {RELATION}""",
    "column": f"""
        select c.relname::text, a.attnum, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attgenerated::text, a.attstorage::text,
            a.attcompression::text, a.attcollation::regcollation::text, a.attstattarget,
            array(select o from unnest(a.attoptions) o where o not like 'pg_attver=%')::text,
            a.attacl::text, a.attisdropped, a.attislocal, a.attinhcount, col_description(c.oid, a.attnum)
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where {RELATION} and a.attnum > 0""",
    "constraint": f"""
        select k.conname::text, k.contype::text, k.conrelid::regclass::text, k.confrelid::regclass::text,
            k.conindid::regclass::text, k.condeferrable, k.condeferred, k.convalidated, k.conislocal, k.coninhcount,
            k.connoinherit, k.conkey::text, k.confkey::text, pg_get_constraintdef(k.oid),
            obj_description(k.oid, 'pg_constraint')
        from pg_constraint k where k.connamespace = {NAMESPACE}""",
    "index": f"""
        select c.relname::text, pg_get_indexdef(i.indexrelid), i.indisunique, i.indisprimary, i.indisvalid,
            i.indisready, i.indisclustered, i.indisreplident, i.indimmediate, c.reloptions::text
        from pg_index i join pg_class c on c.oid = i.indexrelid where {RELATION}""",
    "sequence": f"""
        select c.relname::text, format_type(s.seqtypid, null), s.seqstart, s.seqincrement, s.seqmax, s.seqmin,
            s.seqcache, s.seqcycle, pg_sequence_last_value(c.oid),
            (select d.refobjid::regclass::text || '.' || d.refobjsubid || d.deptype::text from pg_depend d
             where d.objid = c.oid and d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass)
        from pg_sequence s join pg_class c on c.oid = s.seqrelid where {RELATION}""",
    "view": f"""
        select c.relname::text, pg_get_viewdef(c.oid) from pg_class c where {RELATION} and c.relkind in ('v', 'm')""",
    "trigger": f"""
        select c.relname::text, t.tgenabled::text, t.tgisinternal, t.tgtype,
            case when t.tgisinternal then (select k.conname::text from pg_constraint k where k.oid = t.tgconstraint)
                 else pg_get_triggerdef(t.oid) end,
            t.tgfoid::regprocedure::text
        from pg_trigger t join pg_class c on c.oid = t.tgrelid where {RELATION}""",
    "rule": f"""
        select c.relname::text, r.rulename::text, pg_get_ruledef(r.oid)
        from pg_rewrite r join pg_class c on c.oid = r.ev_class where {RELATION}""",
    "policy": f"""
        select c.relname::text, p.polname::text, p.polcmd::text
        from pg_policy p join pg_class c on c.oid = p.polrelid where {RELATION}""",
    "function": f"""
        select p.oid::regprocedure::text, p.prokind::text, p.provolatile::text, p.proparallel::text, p.prosecdef,
            p.proleakproof, p.proisstrict, p.proretset, p.procost, p.prorows, p.proconfig::text, p.proacl::text,
            p.proowner::regrole::text, p.pronargdefaults, p.proargmodes::text, p.proargnames::text,
            pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), pg_get_functiondef(p.oid),
            obj_description(p.oid, 'pg_proc')
        from pg_proc p where p.pronamespace = {NAMESPACE} and p.prokind in ('f', 'p')""",
    "other function": f"""
        select p.oid::regprocedure::text, p.prokind::text from pg_proc p
        where p.pronamespace = {NAMESPACE} and p.prokind not in ('f', 'p')""",
    "type": f"""
        select t.typname::text, t.typtype::text, t.typcategory::text, t.typrelid::regclass::text, t.typacl::text,
            t.typnotnull, format_type(t.typbasetype, t.typtypmod), t.typdefault, t.typowner::regrole::text,
            obj_description(t.oid, 'pg_type'),
            array(select e.enumlabel from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder)::text
        from pg_type t where t.typnamespace = {NAMESPACE}""",
    "statistics": f"""
        select s.stxname::text, pg_get_statisticsobjdef(s.oid)
        from pg_statistic_ext s where s.stxnamespace = {NAMESPACE}""",
    "default privileges": f"""
        select d.defaclrole::regrole::text, d.defaclobjtype::text, d.defaclacl::text
        from pg_default_acl d where d.defaclnamespace in (0, {NAMESPACE})""",
    "operator": f"select o.oprname::text from pg_operator o where o.oprnamespace = {NAMESPACE}",
    "collation": f"select o.collname::text from pg_collation o where o.collnamespace = {NAMESPACE}",
    "dependency": f"""
        select distinct pg_describe_object(d.classid, d.objid, d.objsubid),
            pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype::text
        from pg_depend d
        where d.classid = 'pg_class'::regclass and d.objid in (select c.oid from pg_class c where {RELATION})
            or d.classid = 'pg_proc'::regclass and d.objid in (
                select p.oid from pg_proc p where p.pronamespace = {NAMESPACE})
            or d.classid = 'pg_attrdef'::regclass and d.objid in (
                select a.oid from pg_attrdef a join pg_class c on c.oid = a.adrelid where {RELATION})""",
}
"""What is compared, each row as one definition. Only what a client cannot observe is left out: oids, statistics of use,
the stored default of a column that was added to a table without rows, and the stamp ``pg_attver`` that some builds of
PostgreSQL 15 put on every column when it is created."""

TABLES = f"select c.relname::text from pg_class c where {RELATION} and c.relkind in ('r', 'p') order by 1"


async def catalogue(conn: Any, schema: str, *, rows: bool = True, besides: frozenset[str] = frozenset()) -> set[str]:
    """Return every definition in ``schema`` as a line of text; with ``rows`` also the rows of its tables.

    Tables in ``besides`` keep their rows to themselves.
    """
    lines = set()
    for what, query in QUERIES.items():
        for row in await conn.fetch(query, schema):
            lines.add(f"{what}: " + " | ".join(str(value) for value in row))
    if rows:
        for [table] in await conn.fetch(TABLES, schema):
            if table not in besides:
                quoted = await conn.fetchval("select format('%I.%I', $1::text, $2::text)", schema, table)
                for [row] in await conn.fetch(f"select t::text from {quoted} t"):
                    lines.add(f"row: {table} | {row}")
    return lines
