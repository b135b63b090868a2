"""The git host: a real push, a real hook, and the jobs that follow."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from howdah.testing import assert_enqueued, drain, refute_enqueued
from kit.node import eventually

pytestmark = pytest.mark.anyio

GITHOST = Path(__file__).parents[2] / "examples" / "githost"
NOTHING = "0" * 40


@pytest.fixture
def host(direct):
    """The module of the example, with an app on the fresh database."""
    spec = importlib.util.spec_from_file_location("githost_app", GITHOST / "app.py")
    host = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(host)
    host.app.connect_to(direct.dsn)
    return host


class Clone:
    """A clone to push from; nothing of the user's own git is read or changed."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder / "clone"
        self.repo = folder / "shop.git"
        plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.env = plain | {
            "HOWDAH_DSN": dsn,
            "HOME": str(folder),
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{role}_NAME": "user17" for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_EMAIL": "user17@example.com" for role in ("AUTHOR", "COMMITTER")},
        }
        # as a user may have it: hooks are then looked for elsewhere, unless the repository says otherwise
        (folder / "gitconfig").write_text("[core]\n\thooksPath = /nowhere\n")
        self.run(sys.executable, str(GITHOST / "githost.py"), "create", str(self.repo))
        self.run("git", "clone", "--quiet", str(self.repo), str(self.folder))

    def run(self, *command: str) -> str:
        where = self.folder if self.folder.exists() else self.repo.parent
        ran = subprocess.run(command, cwd=where, env=self.env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    def commit(self, name: str) -> None:
        (self.folder / name).write_text(name * 1000)
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", name)

    def push(self, *refs: str) -> str:
        return self.run("git", "push", "origin", *refs)


@pytest.fixture
def clone(tmp_path, direct):
    return Clone(tmp_path, direct.dsn)


async def events(conn):
    rows = await conn.fetch("select ref, commits, processed_at is not null from push_event order by id")
    return [tuple(row) for row in rows]


async def test_a_push_is_noted_processed_and_measured(host, clone, conn):
    clone.commit("one")
    clone.commit("two")
    output = clone.push("HEAD:refs/heads/main", "HEAD~1:refs/heads/first")

    assert re.search(r"remote: push event 1: refs/heads/main", output)
    assert await events(conn) == [("refs/heads/main", None, False), ("refs/heads/first", None, False)]
    assert len(await assert_enqueued(host.app, "push:process", count=2)) == 2
    assert await conn.fetchval("select count(distinct xmin::text) from push_event") == 2, "a transaction for every ref"

    drained = await drain(host.app, slots=1)
    assert drained.ok == 3, "two pushes, measured once"
    assert await events(conn) == [("refs/heads/main", 2, True), ("refs/heads/first", 0, True)]
    size = await conn.fetchval("select size_bytes from repo")
    assert size == host.size_on_disk(str(clone.repo))
    assert size > 10_000

    clone.commit("three")
    clone.push("HEAD:main", ":first")
    clone.push("HEAD:release")
    await drain(host.app)
    assert sorted((await events(conn))[2:]) == [
        ("refs/heads/first", 0, True),
        ("refs/heads/main", 1, True),
        ("refs/heads/release", 0, True),
    ]
    assert await conn.fetchval("select size_bytes from repo") > size


async def test_the_event_and_its_job_are_one_transaction(host, clone, conn):
    clone.commit("one")
    clone.push("HEAD:main")

    same = await conn.fetchval(
        "select e.xmin = j.xmin from push_event e join howdah.job j on (j.args ->> 'push_event_id')::bigint = e.id"
    )
    assert same is True


async def test_without_its_job_a_push_leaves_no_event(host, clone, conn):
    clone.commit("one")
    await conn.execute("alter function howdah.enqueue rename to unavailable")
    output = clone.push("HEAD:main")
    await conn.execute("alter function howdah.unavailable rename to enqueue")

    assert "refs/heads/main is pushed, but not noted" in output
    assert await events(conn) == []
    await refute_enqueued(host.app, "push:process", finished=True)
    clone.commit("two")
    clone.push("HEAD:main")
    await drain(host.app)
    assert await events(conn) == [("refs/heads/main", 1, True)]


async def test_a_transaction_rolled_back_leaves_neither_event_nor_job(host, clone, conn):
    transaction = conn.transaction()
    await transaction.start()
    event = await host.record_push(conn, str(clone.repo), "refs/heads/main", NOTHING, "a" * 40)
    assert event == 1
    await transaction.rollback()

    assert await events(conn) == []
    await refute_enqueued(host.app, "push:process", finished=True)


async def test_a_repository_of_somebody_else_is_refused(host, clone, conn):
    with pytest.raises(LookupError, match=r"githost\.py create /elsewhere"):
        await host.record_push(conn, "/elsewhere", "refs/heads/main", NOTHING, "a" * 40)
    await refute_enqueued(host.app, "push:process", finished=True)


async def test_a_second_run_of_the_same_event_changes_nothing(host, clone, conn):
    clone.commit("one")
    clone.push("HEAD:main")
    await drain(host.app)
    before = await conn.fetchrow("select * from push_event")

    await host.process_push.enqueue(1)
    drained = await drain(host.app)

    assert drained.ok == 1, "no size is measured again"
    assert await conn.fetchrow("select * from push_event") == before


@pytest.mark.parametrize("args", ['{"push_event_id": 404}', '{"push_event_id": 0}', '{"push_event_id": "x"}', "{}"])
async def test_an_event_that_does_not_exist_is_poison(host, clone, conn, args):
    await conn.execute("select howdah.enqueue('push:process', $1)", args.encode())

    drained = await drain(host.app, raise_failures=False)
    assert (drained.poison, drained.retry) == (1, 0)


async def test_a_repository_that_is_gone_is_poison(host, clone, conn):
    clone.repo.rename(clone.repo.with_name("moved.git"))
    await host.recalc_size.enqueue(1)
    await host.recalc_size.enqueue(404)

    assert (await drain(host.app, raise_failures=False)).poison == 2


async def test_a_failure_leaves_nothing_processed(host, clone, conn):
    clone.commit("one")
    clone.push("HEAD:main")
    moved = clone.repo.rename(clone.repo.with_name("moved.git"))

    drained = await drain(host.app, raise_failures=False)
    assert (drained.retry, drained.errors[0].error) == (1, "RuntimeError")
    assert await events(conn) == [("refs/heads/main", None, False)]
    await refute_enqueued(host.app, "repo:size_recalc", finished=True)

    moved.rename(clone.repo)
    await drain(host.app, scheduled=True)
    assert await events(conn) == [("refs/heads/main", 1, True)]


async def test_a_push_during_a_measurement_is_measured_again(host, clone, conn, monkeypatch):
    clone.commit("one")
    clone.push("HEAD:main")
    loop, measuring, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    measure = host.size_on_disk

    def slowly(path):
        size = measure(path)
        loop.call_soon_threadsafe(measuring.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        return size

    monkeypatch.setattr(host, "size_on_disk", slowly)
    draining = asyncio.create_task(drain(host.app))
    await asyncio.wait_for(measuring.wait(), 30)
    clone.commit("two")
    await asyncio.to_thread(clone.push, "HEAD:main")
    await eventually(lambda: conn.fetchval("select count(*) = 1 from pg_locks where not granted"))
    go_on.set()

    assert (await draining).ok == 4, "two pushes, two measurements"
    assert await conn.fetchval("select size_bytes from repo") == measure(str(clone.repo))


def test_the_whole_thing_runs_in_one_command(tmp_path):
    env = {**os.environ, "GIT_DIR": "/nowhere", "HOME": "/nowhere"}
    ran = subprocess.run(
        [sys.executable, GITHOST / "run.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100
    )

    assert ran.returncode == 0, ran.stderr
    assert "remote: push event 1: refs/heads/main" in ran.stderr
    shown = ran.stdout[ran.stdout.index("push events") :]
    assert re.fullmatch(
        r"""push events
  1  refs/heads/main  commits 2  processed at \d\d:\d\d:\d\d
  2  refs/heads/first  commits 0  processed at \d\d:\d\d:\d\d
repositories
  1  shop.git  [\d,]+ bytes on disk
jobs
  1  push:process  {"push_event_id":1}  done
  2  push:process  {"push_event_id":2}  done
  3  repo:size_recalc  {"repo_id":1}  done
""",
        shown,
    ), shown
