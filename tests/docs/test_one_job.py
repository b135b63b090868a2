"""docs/why/one-job.md: every file and function that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.test_pages import ROOT, prose

PAGE = ROOT / "docs" / "why" / "one-job.md"
NAMED = re.findall(r"\[`([\w.]+)`\]\(([^)]*/src/[^)]+)\)", prose(PAGE))
"""Names of functions, each with the file that the page says they are in."""
MOST_FILES = 15


def names_in(file: Path) -> set[str]:
    """Return the functions of a Python file, those of classes as ``Class.method``; of a statement, its name."""
    if file.suffix == ".sql":
        return {file.stem}
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
    return found


def test_names_are_found(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("class Job:\n    async def run(self): ...\ndef start(): ...\n")

    assert names_in(file) == {"Job.run", "start"}
    assert names_in(tmp_path / "claim.sql") == {"claim"}


@pytest.mark.parametrize(("name", "link"), NAMED, ids=[name for name, _ in NAMED])
def test_every_function_exists_in_its_file(name: str, link: str) -> None:
    file = (PAGE.parent / link).resolve()

    assert file.is_file(), f"{link} does not exist"
    assert name in names_in(file), f"{link} has no {name}"


def test_the_path_is_short() -> None:
    files = {link for _, link in NAMED}

    assert len(NAMED) >= len(files) > 10
    assert len(files) <= MOST_FILES
    assert f"there are {len(files)} files" in " ".join(PAGE.read_text(encoding="utf-8").split())
