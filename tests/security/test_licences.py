"""Licences: all that is needed at run time is permissive, and the page says so truly (S12)."""

from __future__ import annotations

import doctest
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from security import licences
from security.licences import EXTRAS, PAGE, is_allowed, licence_of, page, pins, rows, vendored

OTHERS = {
    "certifi": "MPL-2.0",
    "hypothesis": "MPL-2.0",
    "pathspec": "MPL-2.0",
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
}
"""What only development needs, and is under another licence. None of it is part of what is shipped."""


def is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra or "always")
def test_what_users_install_is_permissive(extra: str) -> None:
    found = rows(extra)

    assert found
    assert {row.name: row.licence for row in found if not is_allowed(row.licence)} == {}
    assert not {row.name for row in found} & OTHERS.keys()


def test_what_development_needs_is_known() -> None:
    needed = [name for name in pins() if is_installed(name)]

    assert len(needed) > 50
    assert {name: licence_of(name) for name in needed if not is_allowed(licence_of(name))} == OTHERS


def test_what_comes_with_the_dashboard_is_permissive() -> None:
    found = dict(vendored())

    assert found.keys() == {"htmx", "uPlot"}
    assert all(map(is_allowed, found.values()))


def test_the_page_is_true() -> None:
    """As to names and licences of whatever is installed here; `scripts/licences` writes it anew."""
    written = PAGE.read_text(encoding="utf-8")

    assert facts(written) == facts(page()), "run scripts/licences"


def facts(text: str) -> set[tuple[str, ...]]:
    """Package, versions that will do, version tested with, licence; of what is not installed here nothing is known."""
    lines = [
        [word.strip() for word in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return {
        tuple(line[:4])
        for line in lines
        if line[0] not in ("package", "file", "---") and (len(line) == 2 or is_installed(line[0]))
    }


def test_examples_in_the_code_are_true() -> None:
    assert doctest.testmod(licences).failed == 0
