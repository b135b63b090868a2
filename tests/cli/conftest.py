"""The command line in a test: called in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from howdah.cli import main
from kit.roles import dsn_for
from kit.shop import Shop

SAID = ("HOWDAH_", "DATABASE_URL", "PG")


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty folder, an environment that names no database."""
    for name in list(os.environ):
        if name.startswith(SAID):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def howdah(nowhere, database) -> Callable[..., Result]:
    """Runs `howdah` with these words on a fresh database."""

    def run(*words: str, dsn: str = database.dsn, **more: str) -> Result:
        env = {"HOWDAH_DSN": dsn_for(dsn, *words[:1]), **more}
        result = CliRunner().invoke(main, list(words), env=env, prog_name="howdah")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def shop(direct, nowhere) -> Iterator[Shop]:
    """A log with consumers, and no worker yet."""
    shop = Shop(direct.dsn, nowhere)
    yield shop
    shop.conn.close()


@pytest.fixture
def standing(howdah) -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a consumer, part by part, as `--json` says them."""

    def rows_of(name: str) -> list[dict[str, Any]]:
        result = howdah("consumers", "show", name, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return rows_of
