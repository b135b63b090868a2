"""What everybody needs to use a page: one heading, names for what is filled in, colours that can be read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from dashboard.conftest import ALL
from howdah.dashboard.pages import PAGES

pytestmark = pytest.mark.anyio

CSS = (files("howdah.dashboard") / "static" / "app.css").read_text(encoding="utf-8")
PATHS = sorted(re.sub(r"\{.*\}", "1", page.path) for page in PAGES if page.method == "GET" and page.path != "/live")
LEAST = 4.5
"""The contrast that text of any size needs, by WCAG 2."""
BACKGROUNDS = ("ground", "paper", "raised", "sunken")
READ_ON = [
    (text, background)
    for text in ("text", "soft", "faint", "accent-text", "good", "bad", "warn")
    for background in BACKGROUNDS
]
BADGES = [(name, f"{name}-soft") for name in ("good", "bad", "warn", "calm")] + [("accent-text", "accent-soft")]


class Outline(HTMLParser):
    """The headings of a page, and what is asked for without a name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.named: set[str] = set()
        self.asked: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        result = dict(attributes)
        assert "style" not in result
        assert not [name for name in result if name.startswith("on")]
        if tag in ("h1", "h2", "h3"):
            self.headings.append(tag)
        elif tag == "label":
            self.named.add(result.get("for") or "")
        elif tag in ("input", "select", "textarea") and result.get("type") != "hidden":
            self.asked.append(result)

    @property
    def nameless(self) -> list[dict[str, str | None]]:
        return [
            attributes
            for attributes in self.asked
            if "aria-label" not in attributes and attributes.get("id") not in self.named
        ]


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_has_one_heading_above_all_others_and_names_what_it_asks_for(app, browser, path):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    await send.enqueue(1)
    await browser.sign_in(ALL)
    seen = Outline((await browser.get(path)).text)

    assert seen.headings[0] == "h1"
    assert seen.headings.count("h1") == 1
    assert seen.nameless == []


async def test_the_way_to_it_is_found_without_a_slash(browser):
    for path in ("/", "/dashboard"):
        answer = await browser.http.get(path)
        assert answer.headers["location"] == "/dashboard/"


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"]'], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "background"), [*READ_ON, *BADGES])
def test_text_can_be_read(theme, text, background):
    colours = named(":root {") | named(theme)

    assert contrast(colours[text], colours[background]) >= LEAST


def named(rule: str) -> dict[str, str]:
    """The colours a rule names."""
    begin = CSS.index(rule)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", CSS[begin : CSS.index("}", begin)]))


def contrast(one: str, other: str) -> float:
    """By WCAG 2; black on white is 21."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
