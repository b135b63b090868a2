"""The lists of packages in CONTRIBUTING.md and docs/why/architecture.md, and the picture, match the tree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pytest

from docs.test_pages import ROOT
from howdah.postgres.database import Database

SOURCE = ROOT / "src" / "howdah"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
ARCHITECTURE = ROOT / "docs" / "why" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
STARTERS = ("create_task", "every", "periodic", "Loop", "Thread")
"""Calls that start a loop and name it by ``name=``."""


def packages() -> list[str]:
    """Return the names of the top-level packages and modules."""
    modules = [path.stem for path in SOURCE.glob("*.py") if path.stem != "__init__"]
    return sorted([*modules, *(path.parent.name for path in SOURCE.glob("*/__init__.py"))])


def listed(page: Path) -> dict[str, str]:
    """Return the names in the list of packages of a page, with what each holds."""
    text = page.read_text(encoding="utf-8")
    rows = re.search(r"^\| package or module \| holds \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert rows, f"{page.name} has no list of packages"
    found = re.findall(r"^\| `(\w+)` \| (\S.*) \|$", rows[1], re.MULTILINE)
    assert len(found) == rows[1].count("\n")
    return dict(found)


@pytest.mark.parametrize("page", [CONTRIBUTING, ARCHITECTURE], ids=lambda page: page.name)
def test_the_list_of_packages_is_that_of_the_tree(page: Path) -> None:
    assert sorted(listed(page)) == packages()


def test_both_pages_have_the_same_list() -> None:
    assert listed(CONTRIBUTING) == listed(ARCHITECTURE)


def test_the_drawing_of_imports_is_what_import_linter_checks() -> None:
    [drawn] = re.findall(r"^```text\n(__main__ .*?)^```$", CONTRIBUTING.read_text(), re.MULTILINE | re.DOTALL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [floors] = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "floors"]

    assert [sorted(line.split()) for line in drawn.splitlines()] == [
        sorted(re.split(r"\s*[|:]\s*", layer)) for layer in floors["layers"]
    ]


def test_the_other_distributions_are_listed() -> None:
    named = {*re.findall(r"`(howdah_\w+)`", ARCHITECTURE.read_text())}

    assert named == {path.parent.name for path in ROOT.glob("*/src/howdah_*/__init__.py")}
    assert named == {*re.findall(r"^\| `(howdah_\w+)` \|", CONTRIBUTING.read_text(), re.MULTILINE)}


def test_the_loops_in_the_picture_exist() -> None:
    drawn = [group.get("data-loop") for group in ElementTree.parse(PICTURE).iter() if group.get("data-loop")]

    assert len(drawn) > 10
    assert {*drawn} - loops() == set()


def loops() -> set[str]:
    """Return the names of tasks, periodic loops and threads; of a name with a variable end, the beginning."""
    return {name for path in SOURCE.rglob("*.py") for name in names_in(ast.parse(path.read_text(encoding="utf-8")))}


def names_in(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in STARTERS:
            for keyword in call.keywords:
                value = keyword.value
                if isinstance(value, ast.JoinedStr):
                    value = value.values[0]
                if keyword.arg == "name" and isinstance(value, ast.Constant):
                    yield str(value.value).strip()


def test_names_of_loops_are_found() -> None:
    tree = ast.parse(
        "create_task(run(), name='howdah a')\nasyncio.create_task(run(), name=f'howdah b {x}')\nother(name='c')"
    )

    assert list(names_in(tree)) == ["howdah a", "howdah b"]


def test_the_tables_in_the_picture_exist(database: Database) -> None:
    drawn = {text.get("data-table"): text.text for text in ElementTree.parse(PICTURE).iter() if text.get("data-table")}
    with psycopg.connect(database.dsn) as conn:
        rows = conn.execute("select relname from pg_class where relnamespace = %s::regnamespace", [database.schema])
        tables = {name for (name,) in rows}

    assert len(drawn) > 20
    assert all(name == shown for name, shown in drawn.items())
    assert drawn.keys() - tables == set()
