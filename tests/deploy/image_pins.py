"""The pinned packages of the image, computed from the metadata of what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILES = {
    "requirements.txt": ("howdah[uvloop,otel]", "howdah-agent"),
    "requirements-build.txt": ("hatchling",),
}
"""What is installed, by the file in deploy/ that has the pins of all it needs."""
OWN = {"howdah", "howdah-agent", "howdah-lab"}


def pins(text: str) -> dict[str, str]:
    """Return the lines of each package in a file of requirements."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {canonicalize_name(re.split(r"[=\s\[;]", block)[0]): block for block in blocks if "==" in block}


def needed(wanted: Iterable[str]) -> set[str]:
    """Return the names of all packages that these need, on any supported Python."""
    found: set[str] = set()
    open_ = [Requirement(each) for each in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while open_:
        each = open_.pop()
        name, extras = canonicalize_name(each.name), frozenset(each.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        for line in lines:
            one = Requirement(line)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                open_.append(one)
    return found - OWN


def content(file: str) -> str:
    """Return what a file in deploy/ should contain."""
    known = pins((ROOT / "requirements-dev.txt").read_text())
    head = "# Made by scripts/image-pins from requirements-dev.txt; do not edit.\n"
    return head + "".join(known[name] for name in sorted(needed(FILES[file])) if name in known)


if __name__ == "__main__":
    for name in FILES:
        (ROOT / "deploy" / name).write_text(content(name))
