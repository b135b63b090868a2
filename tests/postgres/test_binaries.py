"""Where the programs of PostgreSQL are looked for."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from howdah.errors import ConfigError
from howdah.postgres.embedded import binaries
from howdah.postgres.embedded.binaries import Account, Binaries


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    monkeypatch.delenv("HOWDAH_PG_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(binaries, "DISTRIBUTION", tmp_path / "distribution")


@pytest.fixture
def install(tmp_path):
    def install(folder: str, version: str) -> Path:
        path = tmp_path / folder
        path.mkdir(parents=True)
        for name in ("postgres", "initdb"):
            (path / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
            (path / name).chmod(0o755)
        return path

    return install


def test_the_wheel_has_18_and_16_and_18_comes_first(monkeypatch):
    monkeypatch.delenv("HOWDAH_PG_BIN", raising=False)

    assert binaries.find().major == 18
    assert binaries.find(16).major == 16


def test_none_found_names_the_three_ways(nothing):
    with pytest.raises(ConfigError) as caught:
        binaries.find()
    for way in ("a DSN", "pip install 'howdah[embedded]'", "apt install postgresql"):
        assert way in str(caught.value)


def test_none_of_a_version_names_the_version(nothing, install):
    install("distribution/15/bin", "15.18")

    with pytest.raises(ConfigError, match="no PostgreSQL 14 found"):
        binaries.find(14)


def test_the_named_folder_wins_then_path_then_the_newest_of_the_distribution(nothing, install, monkeypatch):
    old, new = install("distribution/9/bin", "9.6"), install("distribution/17/bin", "17devel")
    assert binaries.find() == Binaries(new, 17)
    assert binaries.find(9) == Binaries(old, 9)

    on_path = install("path", "15.1 (Debian 15.1-1)")
    assert binaries.find() == Binaries(on_path, 15)

    named = install("named", "14.2")
    monkeypatch.setenv("HOWDAH_PG_BIN", str(named))
    assert binaries.find() == Binaries(named, 14)
    assert binaries.find(17) == Binaries(new, 17)


def test_a_named_folder_without_programs_is_an_error(nothing, tmp_path, monkeypatch):
    monkeypatch.setenv("HOWDAH_PG_BIN", str(tmp_path))

    with pytest.raises(ConfigError, match="holds no postgres and initdb"):
        binaries.find()


def test_the_first_folder_closed_to_a_user_is_named(tmp_path):
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o750)
    mine = Account("mine", os.geteuid(), os.getegid())
    stranger = Account("stranger", 12345, 12345)

    assert binaries.blocked(closed / "inner", mine) is None
    assert binaries.blocked(Path("/"), stranger) is None
    assert binaries.blocked(closed / "inner", stranger) in (closed, *closed.parents)
