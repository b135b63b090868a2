"""Reads the list of released migrations."""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).with_name("released.txt")


def checksums(text: str | None = None) -> dict[str, tuple[str, str]]:
    """Return the release and the SHA-256 of each released migration, by its file name."""
    rows = [line.split() for line in (text or FILE.read_text()).splitlines() if line and not line.startswith("#")]
    return {name: (release, checksum) for release, checksum, name in rows}


def released() -> dict[str, set[int]]:
    """Return the numbers of the migrations of each release, with those of the releases before it."""
    numbers = {release: set[int]() for release, _ in checksums().values()}
    for name, (release, _) in checksums().items():
        for each in numbers:
            if _order(each) >= _order(release):
                numbers[each].add(int(name.partition("_")[0]))
    return numbers


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))
