"""Released migrations are never edited: databases were made with them."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from howdah.postgres import migrate
from upgrade.released import checksums, released

FOLDER = files("howdah.postgres") / "migrations"


def edited(texts: dict[str, bytes]) -> list[str]:
    """Return the released migrations that are missing or have another text."""
    return [
        name
        for name, (_, checksum) in checksums().items()
        if name not in texts or hashlib.sha256(texts[name]).hexdigest() != checksum
    ]


@pytest.fixture
def texts() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in FOLDER.iterdir() if file.name.endswith(".sql")}


def test_no_released_migration_was_edited(texts):
    assert edited(texts) == [], "add a migration with the next number instead"


def test_an_edited_a_renamed_and_a_missing_migration_are_noticed(texts):
    """The control."""
    first, second, third, *_ = sorted(texts)
    texts[first] += b"-- a comment\n"
    texts["0002_renamed.sql"] = texts.pop(second)
    del texts[third]

    assert edited(texts) == [first, second, third]


def test_new_migrations_come_after_the_released_ones_without_a_gap():
    numbers = [each.number for each in migrate.migrations()]

    assert numbers == list(range(1, len(numbers) + 1))
    for those in released().values():
        assert those == set(range(1, len(those) + 1))
    assert released()["0.2"] == {1, 2, 3, 4, 5}
