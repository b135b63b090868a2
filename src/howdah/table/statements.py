"""The statements of one table: files of SQL with its names, and what its options say, put in.

``{braces}`` are identifiers as everywhere. A comment in angle brackets, ``/*<where>*/``, marks where a fragment goes,
``/*<record>*/…/*</record>*/`` what one replaces; as it stands each file is a statement on a table with default names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from howdah.pg import sql

_MARK = re.compile(r"/\*<(\w+)>\*/(?:(.*?)/\*</\1>\*/)?", re.DOTALL)


@cache
def read() -> dict[str, str]:
    """Every file, by its verb, as it stands."""
    folder = files("howdah.table") / "sql"
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def build(verb: str, names: Mapping[str, str], **fragments: str) -> str:
    """One statement. Identifiers are put in piece by piece, so no name can be taken for a mark nor the reverse."""
    text, built, at = read()[verb], [], 0
    for mark in _MARK.finditer(text):
        built.append(sql.render(text[at : mark.start()], names))
        built.append(fragments.get(mark[1], sql.render(mark[2] or "", names)))
        at = mark.end()
    return "".join(built) + sql.render(text[at:], names)
