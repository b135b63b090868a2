"""deploy/roles.sql, whole: every role, every table, view, sequence and function, every right; read and tried (S9).

What is right stands in rights.txt, reviewed line by line. Whoever adds a table or a function adds its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import pytest

from kit.roles import refuses, run_roles
from security.acl import (
    FUNCTIONS,
    LETTERS,
    ROLES,
    Attempt,
    Key,
    Rights,
    attempts,
    columns_granted,
    granted,
    refused,
    reviewed,
)

pytestmark = pytest.mark.anyio
Dsn = Callable[[str], str]
PINNED = "search_path=pg_catalog, pg_temp"
UNPINNED = {
    "channel": "of a constant; works with the rights of the caller, or in the pinned path of whoever calls it",
    "log_channel": "the same",
    "partition_of": "the same, of its arguments; with a pinned path it could not be inlined into the reading of events",
    "reject_update": "only raises",
}
"""Functions with the path of their caller, and why that is harmless."""


@pytest.fixture
async def grown(roles: Dsn, conn: Any) -> Dsn:
    """A database with partitions, on which the file was run afterwards."""
    await conn.execute("select howdah.grow()")
    run_roles(roles("howdah_owner"))
    return roles


async def test_every_right_is_as_it_was_reviewed(grown: Dsn, conn: Any) -> None:
    reviewed_rights, _ = reviewed()
    found = await granted(conn)

    assert "\n".join(differences(reviewed_rights, found)) == ""


def differences(reviewed_rights: Rights, found: Rights) -> Iterator[str]:
    """What is not as it was reviewed, each with what to do."""
    for key in sorted(found.keys() - reviewed_rights.keys()):
        yield (
            f"howdah.{key[1]} has no line in tests/security/rights.txt: decide who needs it, write the grants into"
            f" deploy/roles.sql, then the line under [{key[0]}]; as it is now: {' '.join((key[1], *found[key]))}"
        )
    for key in sorted(reviewed_rights.keys() - found.keys()):
        yield f"howdah.{key[1]} is gone: take its line under [{key[0]}] out of tests/security/rights.txt"
    for key in sorted(reviewed_rights.keys() & found.keys()):
        if reviewed_rights[key] != found[key]:
            yield (
                f"howdah.{key[1]}: rights.txt says {reviewed_rights[key]}, the database {found[key]}, by role {ROLES};"
                " put deploy/roles.sql right, or review the line"
            )


async def test_what_is_new_is_noticed_and_so_is_what_is_gone(grown: Dsn, conn: Any) -> None:
    """The test above can fail: a table, a function and a sequence that nobody reviewed, and a grant too many."""
    reviewed_rights, _ = reviewed()
    before = set(differences(reviewed_rights, await granted(conn)))
    await conn.execute(
        "create table howdah.mine (); create sequence howdah.own; grant update on howdah.audit to howdah_read"
    )
    await conn.execute("create function howdah.open() returns int language sql as 'select 1'")
    after = set(differences({**reviewed_rights, ("table", "lost"): ("-",) * 4}, await granted(conn)))
    [audit, *more] = sorted(after - before)

    assert "howdah.audit: rights.txt says ('ra', 'ra', '-', 'r'), the database ('ra', 'ra', '-', 'rw')" in audit
    assert [line.split()[0] for line in more] == ["howdah.lost", "howdah.mine", "howdah.open", "howdah.own"]
    assert more[2].endswith("as it is now: open X X X X caller"), "unless told otherwise, PostgreSQL lets everybody"


async def test_columns_are_granted_as_reviewed_and_hashes_to_nobody_who_looks(grown: Dsn, conn: Any) -> None:
    _, reviewed_columns = reviewed()

    assert await columns_granted(conn) == reviewed_columns
    secret = {(line.split()[0], name) for line in reviewed_columns if " r " in line for name in line.split()[3:]}
    assert not {name for _, name in secret} & {"hash", "credential"}


async def test_every_column_of_a_secret_is_known(conn: Any) -> None:
    """A new column of bytes is a hash until somebody says that it is not."""
    rows = await conn.fetch(
        """select c.relname || '.' || a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'howdah'::regnamespace and c.relkind in ('r', 'p') and a.atttypid = 'bytea'::regtype
        order by 1"""
    )

    assert [row[0] for row in rows] == ["api_token.hash", "login.hash", "node.credential"]


@pytest.mark.parametrize("role", ROLES)
async def test_what_is_tried_is_refused_or_not_as_reviewed(grown: Dsn, conn: Any, role: str) -> None:
    """Not what the catalogue says: what happens."""
    reviewed_rights, _ = reviewed()
    tried = [each for each in await attempts(conn) if each.key in reviewed_rights]
    wanted = {each for each in tried if not may(reviewed_rights, role, each)}

    assert len(tried) > 300
    assert {each.statement for each in wanted ^ set(await refused(grown(f"howdah_{role}"), tried))} == set()


def may(reviewed_rights: Rights, role: str, attempt: Attempt) -> bool:
    letters = reviewed_rights[attempt.key][ROLES.index(role)]
    return any(letter in letters for letter in attempt.letter.split("|")) if attempt.letter else False


async def test_the_public_has_nothing(grown: Dsn, conn: Any) -> None:
    acls = """
        select c.relname::text as name, x.privilege_type from pg_class c
        cross join lateral aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
        where c.relnamespace = 'howdah'::regnamespace and x.grantee = 0
        union all select p.proname, x.privilege_type from pg_proc p
        cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
        where p.pronamespace = 'howdah'::regnamespace and x.grantee = 0
        union all select n.nspname, x.privilege_type from pg_namespace n
        cross join lateral aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
        where n.nspname = 'howdah' and x.grantee = 0
        union all select a.attname, x.privilege_type from pg_attribute a join pg_class c on c.oid = a.attrelid
        cross join lateral aclexplode(a.attacl) x where c.relnamespace = 'howdah'::regnamespace and x.grantee = 0"""
    assert [tuple(row) for row in await conn.fetch(acls)] == []

    await conn.execute("create role howdah_stranger login password 'howdah_stranger'")
    try:
        await refuses(
            grown("howdah_stranger"),
            "select from howdah.job",
            "select howdah.enqueue('note')",
            "select howdah.channel()",
            "create temp table mine (x howdah.waiting)",  # types are everybody's, but out of reach
        )
    finally:
        await conn.execute("drop role howdah_stranger")


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_can_become_somebody_else(grown: Dsn, conn: Any, role: str) -> None:
    members = await conn.fetch(
        "select 1 from pg_auth_members where member = $1::text::regrole or roleid = $1::text::regrole", f"howdah_{role}"
    )
    assert members == []
    others = [f"howdah_{each}" for each in ("owner", *ROLES) if each != role]
    await refuses(
        grown(f"howdah_{role}"),
        *(f"set role {other}" for other in others),
        *(f"alter role {other} password 'x'" for other in others),
        *(f"grant {other} to howdah_{role}" for other in others),
        "set session_replication_role = replica",  # would switch triggers off: the gate, the guard of the audit
        "create role mine",
        "copy howdah.job to program 'true'",
        "select pg_read_file('/etc/passwd')",
    )


GRANTED = """
    select regexp_replace(c.relname, '_[0-9].*', ''), a.grantee::regrole::text, a.privilege_type
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.relkind = $1::text::"char" and c.oid > $2 and c.relnamespace = 'howdah'::regnamespace
      and a.grantee <> c.relowner
"""


async def test_a_partition_made_while_nodes_run_gives_nobody_more(roles: Dsn, conn: Any) -> None:
    last = await conn.fetchval("select max(oid) from pg_class")
    await conn.execute("select howdah.grow(20)")
    rows = await conn.fetch("select relowner::regrole::text from pg_class where relkind = 'r' and oid > $1", last)
    granted = {tuple(row) for row in await conn.fetch(GRANTED, "r", last)}
    before = {tuple(row) for row in await conn.fetch(GRANTED, "p", 0)}

    assert len(rows) > 2
    assert {row[0] for row in rows} == {"howdah_owner"}
    # claims read a partition of job by its name
    assert granted == {each for each in before if each[0] == "job" and each[2] == "SELECT"} != set()


# -------------------------------------------------------------------- functions


async def test_every_function_fixes_its_path_or_is_known_to_be_harmless(grown: Dsn, conn: Any) -> None:
    rows = await conn.fetch(FUNCTIONS)
    loose = {row["name"] for row in rows if PINNED not in (row["config"] or ())}

    assert [row["name"] for row in rows if row["definer"] and row["name"] in loose] == [], (
        "works with the rights of the owner"
    )
    assert loose == UNPINNED.keys()


ROBBER = """
create schema eve authorization {role};
set role {role};
create table eve.loot (who text);
create function eve.rob(answer anyelement) returns anyelement language plpgsql as $$
begin
    insert into eve.loot values (current_user);
    return answer;
end $$;
create function eve.substr(text, int, int) returns text language sql as
    $$ select eve.rob(pg_catalog.substr($1, $2, $3)) $$;
create function eve.md5(text) returns text language sql as $$ select eve.rob(pg_catalog.md5($1)) $$;
create function eve.length(text) returns int language sql as $$ select eve.rob(pg_catalog.length($1)) $$;
create function eve.nextval(text) returns bigint language sql as $$ select eve.rob(pg_catalog.nextval($1::regclass)) $$;
create function eve.matches(text, text) returns boolean language sql as
    $$ select eve.rob(pg_catalog.textregexeq($1, $2)) $$;
create operator eve.~ (leftarg = text, rightarg = text, function = eve.matches);
grant usage on schema eve to public;
grant insert on eve.loot to public;
reset role
"""
CARELESS = """
create function howdah.careless(kind text) returns int language plpgsql security definer as $$
begin
    return length(kind);
end $$;
alter function howdah.careless owner to howdah_owner;
grant execute on function howdah.careless to howdah_enqueue
"""


async def test_nothing_of_the_caller_runs_with_the_rights_of_the_owner(grown: Dsn, conn: Any) -> None:
    """Whoever may enqueue puts functions and operators of his own in front of PostgreSQL's."""
    await conn.execute(ROBBER.format(role="howdah_enqueue"))
    await conn.execute(CARELESS)
    await conn.fetch("select from howdah.announce_sleep(null, 600000)")  # so that enqueueing also notifies
    eve = await asyncpg.connect(grown("howdah_enqueue"))
    await eve.execute("set search_path = eve, pg_temp, pg_catalog")
    await eve.execute("create temp table job_key (key text, id bigint)")
    try:
        for key in (None, "k", "k"):
            await eve.fetch("select * from howdah.enqueue('note', key => $1, queue => 'mail')", key)
        assert await conn.fetchval("select count(*) from howdah.job") == 2
        assert [row[0] for row in await conn.fetch("select distinct who from eve.loot")] == []

        await eve.fetch("select howdah.careless('note')")
        robbed = [row[0] for row in await conn.fetch("select distinct who from eve.loot")]
        assert robbed == ["howdah_owner"], "the trap works: without a fixed path it does run"
    finally:
        await eve.close()
        await conn.execute("drop schema eve cascade; drop function howdah.careless")


def test_the_table_is_in_order() -> None:
    """Readable: every section sorted, every line with a word for each role."""
    rights, columns = reviewed()
    keys: list[Key] = list(rights)
    assert keys == sorted(keys, key=lambda key: (["table", "view", "sequence", "function"].index(key[0]), key[1]))
    for (what, name), by_role in rights.items():
        known = "".join(LETTERS["table" if what == "view" else what].values()) + "-"
        assert len(by_role) == len(ROLES) + (what == "function"), name
        assert all(set(letters) <= set(known) for letters in by_role[: len(ROLES)]), name
    assert columns == sorted(columns)
