"""docs/reference/python.md: the modules and functions listed beside `howdah` itself exist."""

from __future__ import annotations

import pkgutil
import re

import pytest

from docs.test_pages import ROOT

PAGE = ROOT / "docs" / "reference" / "python.md"
NAMES = re.findall(r"^\| `(howdah\w*\.[\w.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_list_is_found() -> None:
    assert len(NAMES) > 5


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name: str) -> None:
    assert pkgutil.resolve_name(name)
