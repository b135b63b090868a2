"""The command line in a test: called in this process, or as a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from howdah.cli import main

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
        result = CliRunner().invoke(main, list(words), env={"HOWDAH_DSN": dsn, **more}, prog_name="howdah")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
