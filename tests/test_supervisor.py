"""`howdah worker --processes N`: one parent, several nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from howdah.postgres.database import Database
from howdah.supervisor import SourceFiles, Supervisor
from kit.command import Command, Jobs, alive, eventually

pytestmark = pytest.mark.anyio
PAIR = ("worker", "-a", "kit.command_app:app", "--processes", "2")


@pytest.fixture
def jobs(direct: Database) -> Iterator[Jobs]:
    jobs = Jobs(direct.dsn)
    yield jobs
    jobs.close()


def started(command: Command, nodes: int = 2) -> list[int]:
    eventually(lambda: command.output.count("starts: ") >= nodes, why=lambda: command.output)
    return command.children


def test_two_processes_share_the_work(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, "-c", "2", dsn=database.dsn) as pair:
        started(pair)
        for _ in range(4):
            jobs.enqueue("nap", 60)
        jobs.become(*["running"] * 4)

        nodes = jobs.all("node")
        assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2]


def test_a_signal_drains_all_children(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, "-c", "1", dsn=database.dsn) as pair:
        started(pair)
        jobs.enqueue("nap", 5)
        jobs.enqueue("nap", 5)
        pair.begins("nap", "nap")
        pair.send(signal.SIGINT)

        assert pair.ends() == 0
        assert jobs.all("state, attempt") == [("done", 1), ("done", 1)]
        assert pair.output.count("draining: 1 job running") == 2


def test_a_second_signal_reaches_all_children(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, "-c", "1", dsn=database.dsn) as pair:
        started(pair)
        jobs.enqueue("nap", 60)
        jobs.enqueue("block", 60)
        pair.begins("nap", "block")
        pair.send(signal.SIGTERM)
        eventually(lambda: pair.output.count("draining: 1 job running") == 2, why=lambda: pair.output)
        pair.send(signal.SIGTERM)

        assert pair.ends(20) == 0, "they waited for the grace of 25 s"
        assert jobs.all("state, attempt") == [("queued", 0), ("queued", 0)]


def test_a_dump_comes_from_every_child(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, "-c", "1", dsn=database.dsn) as pair:
        started(pair)
        jobs.enqueue("nap", 60)
        jobs.enqueue("nap", 60)
        pair.begins("nap", "nap")
        time.sleep(2)  # a child too young to answer is not asked
        pair.send(signal.SIGUSR1)

        eventually(lambda: pair.output.count("1 running:") == 2, why=lambda: pair.output)


def test_draining_children_end_by_themselves(database: Database, jobs: Jobs) -> None:
    for _ in range(50):
        jobs.enqueue("nap", 0.05)

    with Command(*PAIR, "--drain", "-c", "5", dsn=database.dsn) as pair:
        assert pair.ends() == 0

    assert set(jobs.all()) == {"done"}


def test_a_child_that_is_killed_is_replaced(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, dsn=database.dsn) as pair:
        victim, other = started(pair)
        os.kill(victim, signal.SIGKILL)
        pair.says("was killed by SIGKILL; starting another")
        first, second = started(pair, nodes=3)

        assert other in (first, second)
        assert victim not in (first, second)
        pair.send(signal.SIGTERM)
        assert pair.ends() == 0


def test_children_end_with_a_parent_that_is_killed(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, "-c", "1", dsn=database.dsn) as pair:
        children = started(pair)
        jobs.enqueue("nap", 60)
        jobs.enqueue("block", 60)
        pair.begins("nap", "block")
        pair.process.kill()

        eventually(lambda: not any(map(alive, children)), 20, lambda: pair.output)  # the jobs take a minute
        assert jobs.all("state, attempt") == [("queued", 0), ("queued", 0)]


def test_a_child_that_cannot_hand_back_ends_all_the_same(database: Database, jobs: Jobs) -> None:
    with Command(*PAIR, "-c", "1", dsn=database.dsn) as pair:
        children = started(pair)
        jobs.enqueue("hog", 60)
        pair.begins("hog")
        pair.process.kill()

        eventually(lambda: not any(map(alive, children)), 20, lambda: pair.output)  # the job takes a minute


def test_why_the_children_cannot_start_is_why_the_parent_ends(database: Database) -> None:
    with Command(*PAIR, "--schema", "elsewhere", dsn=database.dsn) as pair:
        assert pair.ends() == 4


def test_children_that_never_live_end_the_whole(database: Database, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import os\nos._exit(9)\n")

    with Command("worker", "-a", "own:app", "--processes", "2", dsn=database.dsn, folder=tmp_path) as pair:
        assert pair.ends() == 1
        assert "5 times in a row" in pair.output


@pytest.mark.parametrize(
    ("leave", "words"),
    [("os._exit(2)", "exited with code 2"), ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", "was killed by signal 37")],
)
def test_a_handler_that_ends_its_node_ends_no_other(
    database: Database, jobs: Jobs, tmp_path: Path, leave: str, words: str
) -> None:
    (tmp_path / "own.py").write_text(
        "import os, signal\nfrom howdah import Howdah\napp = Howdah()\n"
        f"@app.task\nasync def leave(seconds: float) -> None:\n    {leave}\n"
        "@app.task\nasync def work(seconds: float) -> None: ...\n"
    )

    with Command("worker", "-a", "own:app", "--processes", "2", dsn=database.dsn, folder=tmp_path) as pair:
        started(pair)
        jobs.enqueue("leave")
        pair.says(f"{words}; starting another")
        started(pair, nodes=3)
        jobs.enqueue("work")
        eventually(lambda: "done" in jobs.all(), why=lambda: pair.output)

        pair.send(signal.SIGTERM)
        assert pair.ends() == 0


@pytest.mark.parametrize("ready", [True, False])
async def test_only_children_that_were_never_ready_end_the_whole(tmp_path: Path, ready: bool) -> None:
    report_ready = (
        "from howdah.child_process import READY, report_to_parent; report_to_parent(READY)" if ready else "pass"
    )
    code = f"import os; open('deaths', 'a').write('x'); {report_ready}; os._exit(2)"
    supervisor = Supervisor([[sys.executable, "-c", code]], folder=str(tmp_path))
    running = asyncio.create_task(supervisor.run())

    def deaths() -> int:
        return len((tmp_path / "deaths").read_text()) if (tmp_path / "deaths").exists() else 0

    async with asyncio.timeout(60):
        while (deaths() < 6 or supervisor.pids) and not running.done():  # it must know of the last death, too
            await asyncio.sleep(0.02)
    supervisor.stop()
    assert (deaths(), await running) == ((6, 0) if ready else (1, 2))


async def test_a_child_that_cannot_be_started_ends_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    supervisor = Supervisor([[str(program)], ["sleep", "600"]])
    running = asyncio.create_task(supervisor.run())

    async def until(check: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not check():
                assert not running.done(), "the other child was ended too"
                await asyncio.sleep(0.02)

    await until(lambda: len(supervisor.pids) == 2)
    victim, other = supervisor.pids
    program.rename(tmp_path / "elsewhere")
    os.kill(victim, signal.SIGKILL)
    await until(lambda: caplog.text.count("worker 0 cannot be started") >= 2)
    assert supervisor.pids == [other]
    assert alive(other)

    (tmp_path / "elsewhere").rename(program)
    await until(lambda: len(supervisor.pids) == 2)
    supervisor.stop()
    assert await asyncio.wait_for(running, 60) == 0


async def test_a_program_that_is_not_there_ends_the_whole() -> None:
    assert await asyncio.wait_for(Supervisor([["/nowhere/at/all"]]).run(), 60) == 1


SLOW = """
import time
from pathlib import Path
from howdah import Howdah
print("imports", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
app = Howdah()
"""


def test_children_that_are_slow_to_import_can_be_asked_and_stopped(database: Database, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SLOW)

    with Command("worker", "-a", "own:app", "--processes", "2", dsn=database.dsn, folder=tmp_path) as pair:
        eventually(lambda: pair.output.count("imports") == 2, why=lambda: pair.output)
        time.sleep(5.2)  # so long that nothing is young
        pair.send(signal.SIGUSR1)
        eventually(lambda: pair.output.count("own.py") >= 2, why=lambda: pair.output)
        assert len(pair.children) == 2

        pair.send(signal.SIGTERM)
        assert pair.ends(20) == 0
    assert "starting another" not in pair.last_output


def test_sources_notice_what_changes_comes_and_goes(tmp_path: Path) -> None:
    source = tmp_path / "shop" / "jobs.py"
    source.parent.mkdir()
    source.write_text("a = 1")
    for skipped in (".git", "node_modules", "env"):
        (tmp_path / skipped).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    sources = SourceFiles(tmp_path)

    assert sources.changed() is None
    os.utime(source, ns=(1, 1))
    assert sources.changed() == str(source)
    (tmp_path / "new.py").touch()
    assert sources.changed() == str(tmp_path / "new.py")
    source.unlink()
    assert sources.changed() == str(source)
    for skipped in (".git", "node_modules", "env"):
        (tmp_path / skipped / "other.py").touch()
    assert sources.changed() is None
