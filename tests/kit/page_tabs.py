"""Tabs of a page: variants of the same step, of which a reader follows one.

They are between ``<!-- tabs -->`` and ``<!-- end of tabs -->``; a line in bold type starts each of them.
"""

from __future__ import annotations

import re

SET = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->\n", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^\*\*(.+)\*\*\n", re.MULTILINE)


def tabs(text: str) -> list[str]:
    """Return the titles of the tabs that have a Python block, in their order."""
    found = [(title, body) for each in SET.findall(text) for title, body in _split(each)]
    return list(dict.fromkeys(title for title, body in found if "```python\n" in body))


def chosen(text: str, tab: str | None) -> str:
    """Return a page as a reader of this tab follows it; with None, the whole page."""
    if tab is None:
        return text
    return SET.sub(lambda match: "".join(body for title, body in _split(match[1]) if title == tab), text)


def _split(text: str) -> list[tuple[str, str]]:
    _, *parts = TITLE.split(text)
    return list(zip(parts[::2], parts[1::2], strict=True))
