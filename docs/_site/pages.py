"""Turn the plain Markdown of a page into what the site shows: navigation, tabs, links, the API reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import howdah

FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(#[^)\s]*)?(?=\))")
ENTRY = re.compile(r"^- \[[^\]]+\]\(([\w/-]+)\.md\)", re.MULTILINE)
TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- end of tabs -->$", re.MULTILINE | re.DOTALL)
TAB = re.compile(r"^\*\*(.+)\*\*$", re.MULTILINE)
API = "<!-- api -->"
ALSO = ("howdah.audit.acting_as", "howdah.telemetry.subscribe")
"""Public functions of other modules."""


class Rewriter:
    """Rewrites the pages of a folder; ``files`` is the address at which the files of the repository are shown."""

    def __init__(self, folder: Path, files: str) -> None:
        self._folder = folder
        self._files = files

    def rewrite(self, name: str, text: str) -> str:
        """Return the text that Sphinx parses for the page ``name``."""
        text = outside_of_blocks(text, lambda prose: self._link(name, prose))
        text = TABS.sub(lambda match: tab_set(match[1]), text)
        if API in text:
            text = text.replace(API, "\n".join(api()))
        return text + "".join(navigation(text)) if name == "index" else text

    def _link(self, name: str, prose: str) -> str:
        """Let links to files that are no pages lead to the repository."""
        page = self._folder / f"{name}.md"

        def target(match: re.Match[str]) -> str:
            path = (page.parent / match[1]).resolve()
            if path.is_relative_to(self._folder) or not path.exists():
                return match[0]
            return f"{self._files}/{path.relative_to(self._folder.parent)}{match[2] or ''}"

        return LINK.sub(target, prose)


def outside_of_blocks(text: str, change: Callable[[str], str]) -> str:
    """Apply ``change`` to everything but fenced blocks."""
    return "".join(part if part.startswith("```") else change(part) for part in FENCE.split(text))


def navigation(index: str) -> Iterator[str]:
    """Make the lists of pages on the index the navigation: one part for each heading or line above a list."""
    for part in re.split(r"^(?=## )", index, flags=re.MULTILINE)[1:]:
        title = part.partition("\n")[0].removeprefix("## ")
        for group in part.split("\n\n"):
            if entries := ENTRY.findall(group):
                first = group.partition("\n")[0]
                caption = title if first.startswith("- ") else first
                yield "\n\n```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "\n".join(entries) + "\n```\n"


def tab_set(text: str) -> str:
    """Make tabs of paragraphs that are introduced by a line in bold type; the same choice is kept on all pages."""
    _, *parts = TAB.split(text)
    lines = ["::::{tab-set}"]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        lines += [f":::{{tab-item}} {title}", f":sync: {title.lower()}", "", body.strip(), ":::"]
    return "\n".join([*lines, "::::"])


def api() -> Iterator[str]:
    """Yield directives that document every public name, and the parts of an application, from their docstrings."""
    found = {name: getattr(howdah, name) for name in howdah.__all__ if not name.startswith("_")}
    errors = {name for name, each in found.items() if inspect.isclass(each) and issubclass(each, BaseException)}
    classes = {name for name, each in found.items() if inspect.isclass(each)} - errors
    yield "## Classes\n"
    yield from (entry("autoclass", f"howdah.{name}") for name in sorted(classes))
    yield "## Parts of an application\n"
    for name, kind in parts().items():
        yield f"### `{name}`\n"
        yield entry("autoclass", f"{kind.__module__}.{kind.__name__}")
    yield "## Functions\n"
    yield from (entry("autofunction", f"howdah.{name}") for name in sorted(found.keys() - classes - errors))
    yield from (entry("autofunction", name) for name in ALSO)
    yield "## Errors\n"
    yield from (entry("autoexception", f"howdah.{name}") for name in sorted(errors))


def parts() -> dict[str, type]:
    """Return the classes that have no public name, by how an application reaches them."""
    return {
        "app.admin": result(inspect.getattr_static(howdah.Howdah, "admin").fget),
        "app.log": type(howdah.Howdah().log),
        "app.table(…)": result(howdah.Howdah.table),
        "app.why": result(inspect.getattr_static(howdah.Howdah, "why").fget),
        "task.using(…)": result(howdah.Task.using),
    }


def result(function: Callable[..., Any]) -> type:
    """Return the class of what a function returns."""
    found: type = get_type_hints(function)["return"]
    return get_origin(found) or found


def entry(directive: str, name: str) -> str:
    """Return the directive that documents one name."""
    members = "" if directive == "autofunction" else "   :members:\n"
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n{members}```\n"
