"""The pages: what they show is run, their links lead somewhere, and the reference leaves nothing out.

A Python block whose first line names a file (``# shop.py``) is that file. The other blocks of a page are one
program, as typed into ``python -m asyncio``. In the README and in docs/start the commands of ``console`` blocks are
run too, in order; what the page shows below a command must be in its output, up to an ``…``. A page with tabs is
followed once for each of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

import howdah
from howdah.postgres.database import Database
from kit.page_tabs import chosen, tabs
from kit.roles import dsn_for, owner

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WALKS = [ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]
DSN = "postgresql://localhost/shop"
"""What pages call the reader's own database."""
LOOKS = ("howdah job", "howdah nodes", "howdah queues")
"""Commands that change nothing."""
ELSEWHERE = ("pip ", "python3 -m venv ", "sudo ", "scripts/")
"""Commands that set up a machine, which scripts/setup does for the tests."""

PROGRAM = """
import ast, asyncio, inspect, sys
source = sys.stdin.read()
code = compile(source, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
scope = {"__name__": "__main__"}
async def main():
    made = eval(code, scope)
    if inspect.isawaitable(made):
        await made
asyncio.run(main())
"""


def blocks(page: Path, tab: str | None = None) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page, or of one tab of it: language and text."""
    text = chosen(page.read_text(encoding="utf-8"), tab)
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def name_of(block: str) -> str | None:
    """The file a block is, by its first line."""
    match = re.match(r"# ([\w/]+\.py)\n", block)
    return match[1] if match else None


def python(page: Path, tab: str | None = None) -> list[str]:
    return [text for language, text in blocks(page, tab) if language == "python"]


def program(page: Path) -> str:
    """The blocks that are no file, as one program."""
    return "\n".join(text for text in python(page) if name_of(text) is None)


def unfold(page: Path, folder: Path, tab: str | None = None) -> None:
    """Write every block that is a file."""
    for text in python(page, tab):
        if name := name_of(text):
            (folder / name).write_text(text, encoding="utf-8")


def label(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder that an embedded server started by root can reach."""
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.getuid() and each != Path("/") and len(each.parts) > 2:
            each.chmod(each.stat().st_mode | 0o011)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of somebody who has said nothing yet."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("HOWDAH_", "PG")) and k != "DATABASE_URL"}
    return {**own, "PATH": f"{Path(sys.executable).parent}:{own['PATH']}"}


@pytest.mark.parametrize("page", [page for page in PAGES if program(page)], ids=label)
def test_the_program_of_a_page_runs(page: Path, database: Database, folder: Path, environment: dict[str, str]) -> None:
    unfold(page, folder)
    who = owner(database) if "Tokens(" in program(page) else database
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=program(page),
        cwd=folder,
        env={**environment, "HOWDAH_DSN": who.dsn, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("page", "tab"),
    [(page, tab) for page in WALKS for tab in tabs(page.read_text(encoding="utf-8")) or [None]],
    ids=lambda each: label(each) if isinstance(each, Path) else each,
)
def test_the_files_and_commands_of_a_page_work_as_printed(
    page: Path, tab: str | None, database: Database, folder: Path, environment: dict[str, str]
) -> None:
    unfold(page, folder, tab)
    for file in folder.glob("*.py"):
        subprocess.run(
            [sys.executable, "-c", f"import {file.stem}"],
            cwd=folder,
            env={**environment, "HOWDAH_DSN": database.dsn},
            check=True,
            timeout=60,
        )

    with Terminal(folder, environment, database.dsn) as terminal:
        for language, text in blocks(page, tab):
            if language == "console":
                for command, shown in commands(text):
                    wanted = [line.partition("…")[0].strip() for line in shown]
                    output = terminal.run_until(
                        command, lambda output, wanted=wanted: all(line in output for line in wanted)
                    )
                    for line in wanted:
                        assert line in output, output


class Terminal:
    """A folder, what was exported in it, and the servers left running."""

    def __init__(self, folder: Path, environment: dict[str, str], dsn: str) -> None:
        self._folder = folder
        self._environment = environment
        self._dsn = dsn
        self._exports: list[str] = []
        self._running: list[subprocess.Popen[str]] = []

    def type(self, command: str) -> str:
        """Run one line; returns what it wrote."""
        if command.startswith(ELSEWHERE):
            return ""
        if command.startswith("export "):
            self._exports.append(command)
            return ""
        if command.startswith("howdah dev"):
            return self._leave_running(command)
        ran = subprocess.run(
            ["/bin/sh", "-c", self._script(command)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}"
        return ran.stdout

    def _script(self, command: str) -> str:
        """What was exported before, and one line, typed by whoever has this command for."""
        dsn = dsn_for(self._dsn, command.partition("howdah ")[2].partition(" ")[0])
        return "\n".join([*self._exports, command]).replace(DSN, f"'{dsn}'")

    def run_until(self, command: str, shows: Callable[[str], bool]) -> str:
        """Run one line; one that looks again and again until it shows what it should, while a node works on it."""
        until = time.monotonic() + 60
        while True:
            output = self.type(command)
            if shows(output) or not self._running or not command.startswith(LOOKS) or time.monotonic() > until:
                return output

    def _leave_running(self, command: str) -> str:
        output = self._folder / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdout=file,
                stderr=file,
                text=True,
            )
        self._running.append(process)
        until = time.monotonic() + 90
        while "starts:" not in output.read_text() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        return output.read_text()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.terminate()
            process.wait(30)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Every command of a console block, with the lines shown below it."""
    command, shown = "", []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:].partition("   #")[0], []
        elif line.strip():
            shown.append(line)
    if command:
        yield command, shown


def test_the_transactional_task_of_the_readme_is_one_commit(
    database: Database, folder: Path, environment: dict[str, str]
) -> None:
    unfold(ROOT / "README.md", folder)
    with psycopg.connect(database.dsn, autocommit=True) as conn:
        conn.execute("create table orders (id bigint primary key, paid boolean not null default false)")
        conn.execute("insert into orders values (17)")
        conn.execute("select howdah.enqueue('charge', '{\"order_id\": 17}')")

        with Terminal(folder, {**environment, "HOWDAH_DSN": database.dsn}, database.dsn) as terminal:
            terminal.type("howdah worker -a orders:app --drain")

        assert conn.execute("select paid from orders").fetchall() == [(True,)]
        jobs = conn.execute("select kind, state from howdah.jobs order by id").fetchall()
        assert jobs == [("charge", "done"), ("send_welcome", "queued")]


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not re.match(r"[a-z]+:", link)]

    assert [link for link in links if not leads_somewhere(page, unquote(link))] == []


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not anchor or target.suffix != ".md":
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", prose(target), re.MULTILINE) if target.exists() else []
    return anchor in {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [label(page) for page in PAGES[1:] if f"({page.relative_to(ROOT / 'docs')})" not in index]

    assert missing == ["docs/index.md"]


def test_the_reference_explains_every_public_name() -> None:
    reference = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ .*$", reference, re.MULTILINE))
    missing = [name for name in howdah.__all__ if not any(f"`{name}" in heading for heading in headings)]

    assert missing == []


def test_every_test_a_page_names_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))}
    there = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (\w+)", file.read_text())
    }

    assert named - there == set()
