"""The documentation site: what is made of the plain Markdown of a page. ``scripts/docs`` builds the site itself."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import howdah

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load(name: str) -> ModuleType:
    """A module of docs/_site, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_site_{name}", DOCS / "_site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages, versions = load("pages"), load("versions")
rewriter = pages.Rewriter(DOCS, "https://example.com/files")


def test_the_navigation_has_every_page_once() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    entries = re.findall(r"^[\w/-]+$", "".join(pages.navigation(index)), re.MULTILINE)

    there = [str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")]
    assert sorted(entries) == sorted(set(there) - {"index"})


def test_a_group_of_pages_is_named_by_the_line_above_it() -> None:
    index = "# X\n\n## Start\n\n- [A](a.md): first\n\n## How to\n\nEnqueue\n- [B](b/b.md)\n- [C](c.md)\n"

    first, second = pages.navigation(index)

    assert ":caption: Start\n\na\n```" in first
    assert ":caption: Enqueue\n\nb/b\nc\n```" in second


def test_links_to_files_outside_of_the_docs_lead_to_the_repository() -> None:
    text = "[a](../../SECURITY.md#x) [b](python.md) [c](https://example.com) ![d](../images/job.png)\n"
    block = "```text\n[a](../../SECURITY.md)\n```"

    made = rewriter.rewrite("reference/versions", text + block)

    assert made == text.replace("../../SECURITY.md", "https://example.com/files/SECURITY.md") + block


def test_variants_between_marks_become_tabs() -> None:
    text = "Before\n\n<!-- tabs -->\n**asyncio**\n\n```python\na\n```\n\n**Django**\n\nb\n<!-- end of tabs -->\nAfter\n"

    made = rewriter.rewrite("page", text)

    assert made == (
        "Before\n\n::::{tab-set}\n"
        ":::{tab-item} asyncio\n:sync: asyncio\n\n```python\na\n```\n:::\n"
        ":::{tab-item} Django\n:sync: django\n\nb\n:::\n"
        "::::\nAfter\n"
    )


def test_marks_of_tabs_come_in_pairs_with_two_variants_or_more() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        found = pages.TABS.findall(text)
        assert text.count("<!-- tabs -->") == text.count("<!-- end of tabs -->") == len(found), page
        assert all(len(pages.TAB.findall(each)) > 1 for each in found), page


def test_the_api_page_documents_every_public_name() -> None:
    made = rewriter.rewrite("reference/api", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"))

    documented = re.findall(r"^\.\. auto\w+:: howdah\.(\w+)$", made, re.MULTILINE)
    assert sorted(documented) == sorted(set(howdah.__all__) - {"__version__"})


def test_versions_are_published_beside_each_other(tmp_path: Path) -> None:
    build, site = tmp_path / "build", tmp_path / "site"
    build.mkdir()
    site.mkdir()
    for version in ("0.9.0", "dev", "0.10.0", "0.10.1"):
        (build / "index.html").write_text(version)
        versions.publish(build, site, version)

    assert json.loads((site / "versions.json").read_text()) == ["0.10", "0.9", "dev"]
    assert (site / "0.10" / "index.html").read_text() == "0.10.1"
    assert "url=0.10/" in (site / "index.html").read_text()


def test_examples_in_the_code_are_true() -> None:
    assert doctest.testmod(versions).failed == 0
