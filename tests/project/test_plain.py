"""Names and words: each class has its own name, modules stay few, and no text uses words that hide its subject."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "src", ROOT / "lab" / "src", ROOT / "agent" / "src"]
TESTS = ROOT / "tests"
DRIVERS = ROOT / "lab/src/howdah_lab/bench/systems"
"""Programs of their own, each for the environment of another library: no module imports them."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_MODULES = 240
"""Modules of the runtime package; fold or delete before you raise it."""
FLOORS = 11
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|those who|what is said|turned away|let go|goes on)\b", re.IGNORECASE)
"""Words that leave open which node, worker, client, transaction or row is meant."""
OPENINGS = re.compile(r"(What|Who|Whoever|How|Whether|Those)\b")
"""First words of docstrings that describe a question instead of the thing."""
BANNED_NAMES = re.compile(
    r"agrees|appetite|away|bell|bodies|books|chores|companion|confidant|crew|crown|deaths|deeds?|desk|door|elsewhere"
    r"|enders|endings|errands|evidence|farm|followers|fronts?|ground|harm|heart|hurt|interleave_place|interleave_shares"
    r"|looks?|lot|manners|meetings|moments|mouth|neighbours|orphans|patience|people|person|places?|pulse|refuser|reign"
    r"|said|settled|shares?|silence|site|sour|strays|tabs|talk|telling|told|traps|trio|vandals|voice|waits|ways|wound"
    r"|yard"
)
"""Names that no module and no fixture may have: a reader would not search for them."""
ALLOWED = {
    "src/howdah/postgres/embedded/binaries.py": "the account `nobody`",
    "src/howdah/postgres/embedded/server.py": "the account `nobody`",
}


def python_files() -> list[Path]:
    return sorted(file for source in SOURCES for file in source.rglob("*.py"))


def texts() -> Iterator[tuple[str, int, str]]:
    """Every line of sources and pages, without the code spans of pages."""
    for source in SOURCES:
        for file in source.rglob("*"):
            if file.suffix in {".py", ".sql", ".html"}:
                yield from ((name_of(file), at, line) for at, line in enumerate(file.read_text().splitlines(), 1))
    for page in PAGES:
        for at, line in enumerate(page.read_text().splitlines(), 1):
            yield name_of(page), at, re.sub(r"`[^`]*`", "", line)


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def riddles(line: str) -> list[str]:
    return RIDDLES.findall(line)


def test_every_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in python_files():
        if file.is_relative_to(DRIVERS):
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name_of(file))
    assert len(homes) > 300
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_the_runtime_package_grows_no_further() -> None:
    assert len(list((ROOT / "src").rglob("*.py"))) <= MOST_MODULES


def test_there_are_few_import_floors() -> None:
    found = re.search(r'id = "floors".*?layers = \[\n(.*?)\n\]', (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert found
    assert len(found[1].splitlines()) <= FLOORS


def test_no_text_hides_its_subject() -> None:
    found = [f"{name}:{at}: {line.strip()}" for name, at, line in texts() if name not in ALLOWED and riddles(line)]
    assert found == []


def test_a_word_that_hides_its_subject_is_seen() -> None:
    assert riddles("The lease goes on while Nobody renews it.") == ["goes on", "Nobody"]
    assert riddles("The lease stays while no node renews it.") == []


def test_docstrings_name_the_thing() -> None:
    found = [
        f"{name_of(file)}:{node.lineno}: {node.value.splitlines()[0]}"
        for file in python_files()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_docstring(file, node)
        if OPENINGS.match(node.value)
    ]
    assert found == []


def is_docstring(file: Path, node: ast.Constant) -> bool:
    lines = file.read_text().splitlines()
    return lines[node.lineno - 1].lstrip().startswith(('"""', 'r"""'))


def test_modules_have_plain_names() -> None:
    files = [*python_files(), *TESTS.rglob("*.py")]
    assert len(files) > 500
    assert [name_of(file) for file in files if is_banned(file.stem)] == []


def test_fixtures_have_plain_names() -> None:
    found = [(name_of(file), name) for file in [*python_files(), *TESTS.rglob("*.py")] for name in fixtures(file)]
    assert len(found) > 200
    assert [(file, name) for file, name in found if is_banned(name)] == []


def test_a_banned_name_is_seen() -> None:
    assert [name for name in ("test_silence", "place", "places", "said", "lots", "replace") if is_banned(name)] == [
        "test_silence",
        "place",
        "places",
        "said",
    ]


def is_banned(name: str) -> bool:
    return BANNED_NAMES.fullmatch(name.removeprefix("test_")) is not None


def fixtures(file: Path) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if any("fixture" in ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list)
    ]
