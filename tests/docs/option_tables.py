"""The tables of options in the reference, made of the classes that declare the options.

A table stands between ``<!-- options: module:Class -->`` and ``<!-- end of options -->``. ``scripts/option-tables``
writes all of them anew.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from howdah.options import Option, options_of, variable

PAGES = Path(__file__).parents[2] / "docs"
TABLE = re.compile(r"(<!-- options: ([\w.]+):(\w+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
HEAD = "| key | variable | flag | type | default | |\n|---|---|---|---|---|---|\n"


def table(cls: type) -> str:
    """The table of a class."""
    return HEAD + "".join(f"| {' | '.join(row(each))} |\n" for each in options_of(cls))


def row(option: Option) -> list[str]:
    """The cells of one option."""
    key = " or ".join(map(code, option.keys)) if "<" not in option.section else code(option.name)
    variables = [variable(each) for each in option.keys]
    if option.also:
        variables.append(option.also)
    flags = ", ".join(map(code, option.flags)).replace("/--no", "`, `--no")
    default = option.default_text if option.shown else code(option.default_text)
    return [key, ", ".join(map(code, variables)), flags, option.type.words, default, option.help.replace("|", "\\|")]


def code(text: str) -> str:
    return "`{}`".format(text.replace("|", "\\|")) if text else ""


def written(text: str) -> str:
    """A page with its tables as they should be."""
    return TABLE.sub(lambda found: f"{found[1]}{table(named(found[2], found[3]))}{found[4]}", text)


def named(module: str, name: str) -> type:
    found: type = getattr(importlib.import_module(module), name)
    return found


def classes() -> Iterator[type]:
    """Every class that has a table."""
    for page in sorted(PAGES.rglob("*.md")):
        for found in TABLE.finditer(page.read_text(encoding="utf-8")):
            yield named(found[2], found[3])


if __name__ == "__main__":
    for page in sorted(PAGES.rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        if (after := written(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(PAGES.parent))
