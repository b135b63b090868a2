"""The fixtures for users' own tests: whole runs of pytest over a small project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-your-jobs.md"

SHOP = """
from howdah import Howdah
app = Howdah()
other = Howdah("postgresql://nowhere.invalid/x", schema="jobs of its own")

@app.task
async def follow(n: int) -> None: ...

@app.task
async def note(n: int) -> None:
    await follow.enqueue(n)

@other.task
def sync(n: int) -> None: ...
"""

CONFIG = """
[pytest]
howdah_app = shop:app
filterwarnings =
    error
"""


class Project:
    """A small project with tests of its own."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self._dsn = dsn

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name.replace("__", ".")).write_text(text)

    def run(self, *flags: str, **environment: str) -> str:
        """Run pytest over it; it must pass."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG", "PYTEST_"))}
        env |= {"HOWDAH_TEST_DSN": self._dsn, "PYTHONPATH": str(self.folder), **environment}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags]
        ran = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture
def project(tmp_path, server):
    project = Project(tmp_path, server.dsn)
    project.write(shop__py=SHOP, pytest__ini=CONFIG)
    yield project
    with psycopg.connect(server.dsn) as conn:
        left = conn.execute(r"select datname from pg_database where datname ~ '^howdah_test_[0-9a-f]{8}_\d+$'")
        assert left.fetchall() == [], "a run drops what it creates"


def test_every_test_has_a_database_of_its_own(project):
    project.write(
        test_it__py="""
import pytest
from howdah.testing import assert_enqueued, assert_enqueued_sync, drain, drain_sync, refute_enqueued_sync
from shop import app, follow, note

@pytest.mark.anyio
@pytest.mark.parametrize("n", range(3))
async def test_async(howdah_app, anyio_backend_name, n):
    assert howdah_app is app
    await note.enqueue(n)
    await assert_enqueued(app, note, count=1)
    assert (await drain(app)).ok == 2

@pytest.mark.parametrize("n", range(3))
def test_sync(howdah_app, n):
    refute_enqueued_sync(app, note, finished=True)
    note.enqueue_sync(n)
    assert len(assert_enqueued_sync(app, note)) == 1
    assert drain_sync(app).ok == 2

class TestMethods:
    @pytest.mark.anyio
    async def test_async(self, howdah_app):
        await note.enqueue(1)
        assert [job.id for job in await assert_enqueued(app, note)] == [1]

def test_it_is_as_before():
    assert app._dsn is None
""",
        conftest__py="""
import pytest
@pytest.fixture
def anyio_backend():
    return "asyncio"
""",
    )
    assert "8 passed" in project.run()


def test_connections_do_not_outlive_their_test(project):
    project.write(
        test_it__py="""
import asyncio, pytest, psycopg
from shop import app, note

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def alone(howdah_dsn):
    yield
    with psycopg.connect(howdah_dsn, autocommit=True) as conn:
        for _ in range(100):
            [n] = conn.execute("select count(*) from pg_stat_activity where datname = current_database()").fetchone()
            if n == 1:
                return
            conn.execute("select pg_sleep(0.05)")
        pytest.fail(f"{n} connections")

@pytest.mark.anyio
async def test_async(alone, howdah_app):
    await note.enqueue(1)

@pytest.fixture
async def early(howdah_app):
    await note.enqueue(1)
    yield

@pytest.mark.anyio
async def test_async_with_a_fixture(alone, early):
    await note.enqueue(1)

def test_sync(alone, howdah_app):
    note.enqueue_sync(1)

@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()

def test_a_loop_kept_open(loop, alone, howdah_app):
    loop.run_until_complete(note.enqueue(1))
"""
    )
    assert "4 passed" in project.run()


def test_an_app_with_a_schema_of_its_own_is_bound_by_hand(project):
    project.write(
        conftest__py="""
import pytest, shop
@pytest.fixture
def howdah_app(howdah_bind):
    return howdah_bind(shop.other)
""",
        test_it__py="""
from howdah.testing import assert_enqueued_sync, drain_sync
from shop import other, sync

def test_it(howdah_app):
    sync.enqueue_sync(1)
    assert assert_enqueued_sync(other, sync, 1)
    assert drain_sync(other).ok == 1

def test_it_is_as_before():
    assert other._dsn == "postgresql://nowhere.invalid/x"
""",
    )
    assert "2 passed" in project.run()


def test_a_server_starts_only_for_those_who_ask(project):
    project.write(test_it__py="def test_it(): pass")
    project.run(HOWDAH_TEST_DSN="postgresql://nowhere.invalid/x")

    project.write(
        test_it__py="""
def test_it(howdah_server, howdah_dsn, pytestconfig):
    assert howdah_dsn.startswith("postgresql://") and howdah_server.dsn != pytestconfig.getoption("--howdah-dsn")
"""
    )
    project.run(HOWDAH_TEST_DSN="")


def test_the_flag_wins_over_the_environment(project, server):
    project.write(test_it__py="def test_it(howdah_dsn, howdah_server): assert 'nowhere' not in howdah_server.dsn")
    project.run("--howdah-dsn", server.dsn, HOWDAH_TEST_DSN="postgresql://nowhere.invalid/x")


def test_without_an_app_the_message_says_what_to_do(project):
    project.write(pytest__ini="[pytest]\n", test_it__py="def test_it(howdah_app): pass")
    with pytest.raises(AssertionError, match="set howdah_app = module:attribute"):
        project.run()


def test_a_job_that_raises_shows_itself_in_the_report(project):
    project.write(
        test_it__py="""
from howdah.testing import drain_sync
from shop import app

def test_it(howdah_app):
    @app.task
    def broken(n: int) -> None:
        raise LookupError("no such order")
    broken.enqueue_sync(17)
    drain_sync(app)
"""
    )
    with pytest.raises(AssertionError, match=r"(?s)broken\(n=17\).*LookupError: no such order"):
        project.run()


def test_the_page_works_as_written(project):
    for block in re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        path, _, text = block.partition("\n")
        (project.folder / path.removeprefix("# ")).write_text(text)
    (project.folder / "pytest.ini").unlink()

    conftest = project.folder / "conftest.py"
    conftest.write_text(conftest.read_text() + '\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n')
    assert "6 passed" in project.run()


def test_importing_the_plugin_imports_nothing_more():
    script = """
import sys, howdah, howdah.testing
before = set(sys.modules)
import pytest, howdah.testing.plugin
print(sorted(name for name in set(sys.modules) - before if name.startswith("howdah")))
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "['howdah.testing.plugin']"
