"""Who may do what in the schema ``howdah``: as it was reviewed, as the catalogue says, and as it is when tried."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

FILE = Path(__file__).parent / "rights.txt"
ROLES = ("worker", "fleet", "enqueue", "read")
"""All but the owner, who may do everything."""
LETTERS = {
    "table": {"select": "r", "insert": "a", "update": "w", "delete": "d"},
    "sequence": {"select": "r", "usage": "U", "update": "w"},
    "function": {"execute": "X"},
}
Key = tuple[str, str]
"""What it is (table, view, sequence, function) and its name."""
Rights = Mapping[Key, tuple[str, ...]]
"""The letters of every role, in the order of ``ROLES``; of a function, last, whose rights it works with."""

RELATIONS = """
    select c.relname as name, case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end as what
    from pg_class c where c.relnamespace = 'howdah'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
    order by 1"""
FUNCTIONS = """
    select p.oid, p.proname as name, p.prosecdef as definer, p.prorettype = 'trigger'::regtype as trigger,
        p.proconfig as config,
        array(select format_type(t, null) from unnest(p.proargtypes) t) as types
    from pg_proc p where p.pronamespace = 'howdah'::regnamespace order by 2, 1"""
COLUMNS = """
    select c.relname as name, r.role, x.privilege_type as privilege,
        array_agg(a.attname::text order by a.attname) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    cross join lateral aclexplode(a.attacl) x
    cross join unnest($1::text[]) r(role)
    where c.relnamespace = 'howdah'::regnamespace and x.grantee = ('howdah_' || r.role)::regrole
    group by 1, 2, 3 order by 1, 2, 3"""


def plain(name: str) -> str:
    """The name a family goes by: partitions and sleep markers come in numbers.

    >>> plain("job_0_1000000"), plain("sleep_marker_12"), plain("job_key")
    ('job_<n>_<n>', 'sleep_marker_<n>', 'job_key')
    """
    return re.sub(r"(?<=_)\d+(?=_|$)", "<n>", name)


# -------------------------------------------------------------------- as it was reviewed


def reviewed() -> tuple[Rights, list[str]]:
    """What the file says: of whole things, and the lines on columns."""
    rights: dict[Key, tuple[str, ...]] = {}
    columns: list[str] = []
    section = ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if line.startswith("["):
            section = words[0].strip("[]")
        elif section == "columns":
            columns.append(" ".join(words))
        else:
            assert (section, words[0]) not in rights, f"{FILE.name} names {section} {words[0]} twice"
            rights[section, words[0]] = tuple(words[1:])
    return rights, columns


# -------------------------------------------------------------------- as the catalogue says


async def granted(conn: Any) -> Rights:
    """What every role has on every thing, whichever way it came by it."""
    found: dict[Key, set[tuple[str, ...]]] = {}
    for row in await conn.fetch(RELATIONS):
        kind = "sequence" if row["what"] == "sequence" else "table"
        letters = [await _letters(conn, kind, role, f"howdah.{row['name']}") for role in ROLES]
        found.setdefault((row["what"], plain(row["name"])), set()).add(tuple(letters))
    for row in await conn.fetch(FUNCTIONS):
        letters = [await _letters(conn, "function", role, row["oid"]) for role in ROLES]
        found.setdefault(("function", row["name"]), set()).add((*letters, "owner" if row["definer"] else "caller"))
    for key, several in found.items():
        assert len(several) == 1, f"{key} is not alike in all of its family: {several}"
    return {key: several.pop() for key, several in found.items()}


async def columns_granted(conn: Any) -> list[str]:
    """What is granted on single columns."""
    rows = await conn.fetch(COLUMNS, list(ROLES))
    return [
        " ".join([row["name"], row["role"], LETTERS["table"][row["privilege"].lower()], *row["columns"]])
        for row in rows
    ]


async def _letters(conn: Any, kind: str, role: str, thing: Any) -> str:
    argument = "oid" if kind == "function" else "text"
    rows = await conn.fetch(
        f"select p from unnest($3::text[]) with ordinality u(p, n)"
        f" where has_{kind}_privilege($1::text, $2::{argument}, p) order by n",
        f"howdah_{role}",
        thing,
        list(LETTERS[kind]),
    )
    return "".join(LETTERS[kind][row[0]] for row in rows) or "-"


# -------------------------------------------------------------------- as it is when tried


@dataclass(frozen=True)
class Attempt:
    """One statement that changes nothing, and the right it needs."""

    key: Key
    letter: str
    statement: str


async def attempts(conn: Any) -> list[Attempt]:
    """A statement for every right on every thing; run as somebody, it is refused or does nothing."""
    made: list[Attempt] = []
    for row in await conn.fetch(RELATIONS):
        name, key = f'howdah."{row["name"]}"', (row["what"], plain(row["name"]))
        if row["what"] == "sequence":
            made.append(Attempt(key, "r", f"select last_value from {name}"))
            made.append(Attempt(key, "U|w", f"select nextval('{name}')"))
            made.append(Attempt(key, "w", f"select setval('{name}', 1, false)"))
        else:
            column = await conn.fetchval(
                "select quote_ident(attname) from pg_attribute where attrelid = $1::text::regclass and attnum > 0"
                " and not attisdropped order by attnum limit 1",
                name,
            )
            made.append(Attempt(key, "r", f"select * from {name} limit 0"))
            if row["what"] == "table":  # the view shows; nothing is written through it
                made.append(
                    Attempt(key, "a", f"insert into {name} ({column}) overriding system value select null where false")
                )
                made.append(Attempt(key, "w", f"update {name} set {column} = default where false"))
                made.append(Attempt(key, "d", f"delete from {name} where false"))
            made += [Attempt(key, "", statement) for statement in _never(row["what"], name)]
    for row in await conn.fetch(FUNCTIONS):
        if not row["trigger"]:  # nobody can call those, whatever he may
            values = ", ".join(f"(select null::{each})" for each in row["types"])  # a bare null is not even called with
            made.append(Attempt(("function", row["name"]), "X", f'select howdah."{row["name"]}"({values}) where false'))
    return made


def _never(what: str, name: str) -> Iterator[str]:
    yield f"comment on {what} {name} is 'mine'"
    yield f"alter {what} {name} rename to mine"
    yield f"drop {what} {name}"
    if what == "table":
        yield f"truncate {name} cascade"
        yield f"create trigger mine after insert on {name} execute function suppress_redundant_updates_trigger()"


async def refused(dsn: str, tried: Iterable[Attempt]) -> list[Attempt]:
    """Those of these that are denied, each in a transaction that is undone."""
    conn = await asyncpg.connect(dsn)
    denied = []
    try:
        for each in tried:
            undone = conn.transaction()
            await undone.start()
            try:
                await conn.execute(each.statement)
            except asyncpg.InsufficientPrivilegeError:
                denied.append(each)
            finally:
                await undone.rollback()
    finally:
        await conn.close()
    return denied
