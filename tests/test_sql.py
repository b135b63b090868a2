"""Every statement file prepares on the newest schema and says what it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import howdah
from howdah.postgres import sql

pytestmark = pytest.mark.anyio
SOURCE = Path(howdah.__file__).parent
# they stand on tables of others; tests of their own run every one of them
ELSEWHERE = {"bench", "demo", "table", "torture"}
FILES = sorted(path for path in SOURCE.rglob("sql/*.sql") if path.parent.parent.name not in ELSEWHERE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
async def test_a_statement_prepares_and_names_its_parameters(path, conn):
    text = path.read_text(encoding="utf-8")
    header = "".join(re.findall(r"(?m)^--.*\n", text))
    body = re.sub(r"(?m)^\s*--.*$", "", text)

    await conn.prepare(sql.render(text, {"schema": "howdah"}))
    assert header.startswith(f"-- {path.stem}: ")
    missing = set(re.findall(r"\$\d+", body)) - set(re.findall(r"\$\d+", header))
    assert not missing, f"the header of {path.name} does not name {sorted(missing)}"


def test_there_are_statements():
    assert len(FILES) > 15


@pytest.mark.parametrize(
    "name", ['we"ird; drop--', "it's", "ünïcode", "a b", "select", "x" * 63, "$1", "{schema}", "%s"]
)
def test_identifiers_are_quoted(name):
    rendered = sql.render("{schema} {'schema'} {'schema.job'}", {"schema": name})
    quoted = '"' + name.replace('"', '""') + '"'
    assert rendered == f"{quoted} {sql.literal(name)} {sql.literal(quoted + '.job')}"


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "ü" * 32])
def test_names_postgresql_cannot_have_are_refused(name):
    with pytest.raises(howdah.ConfigError):
        sql.identifier(name)
