"""Programs as tasks: real processes with real signals, on a node of the database and on one without."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from howdah import CodedError, ConfigError, Howdah, RateLimited, job_log, progress
from howdah.job import Job
from howdah.store import JobLogEntry, RunRecord
from howdah.worker.job_log import JobLogBuffer
from howdah_agent.executors.command import command
from howdah_agent.executors.template import Template
from howdah_agent.program.run import CannotRun, run
from kit.control_plane import run_remote_node, serving
from kit.node import drain, ended, eventually, job, node, quick

pytestmark = pytest.mark.anyio

SHELL = ["sh", "-c"]
ENVIRONMENT = {"PATH": os.environ["PATH"]}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def numbers(file: Path, count: int) -> list[int]:
    """The process ids a program wrote into a file, once they are all there."""

    async def written() -> list[int]:
        found = [int(word) for word in file.read_text().split()] if file.exists() else []
        return found if len(found) == count else []

    return await eventually(written)


async def gone(*pids: int) -> None:
    async def none() -> bool:
        return not any(map(alive, pids))

    await eventually(none)


def define(app: Howdah, name: str, words: list[str], **settings) -> object:
    settings.setdefault("environment", ("PATH",))
    return command(app, name, words, **settings)


@asynccontextmanager
async def working(where: str, app: Howdah, build):
    """The tasks that ``build(app)`` makes, on a node of one kind or the other."""
    build(app)
    if where == "database":
        async with node(app):
            yield
        return
    there = Howdah("postgresql://nobody@127.0.0.1:1/nowhere")
    build(there)
    async with serving(app) as plane, run_remote_node(there, plane):
        yield


both = pytest.mark.parametrize("where", ["database", "http"])


async def log_lines(conn, id: int) -> list[tuple[str, str]]:
    rows = await conn.fetch("select stream, line from howdah.job_log where id = $1 order by seq", id)
    return [(row["stream"], row["line"]) for row in rows]


# ---------------------------------------------------------------- templates


def test_an_argument_is_one_word_whatever_it_holds():
    template = Template(["cp", "{a}", "--to={b}/x", "{more*}"])
    hostile = "; rm -rf / $(id) `id` 'x' \"y\" \n *"
    assert template.fill({"a": hostile, "b": "-b", "more": ["1", hostile]}) == [
        "cp",
        hostile,
        "--to=-b/x",
        "1",
        hostile,
    ]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["rm", "{file}"], {"file": "-rf"}),
        (["rm", "{file}"], {"file": "--no-preserve-root"}),
        (["rm", "{a}{b}"], {"a": "", "b": "-rf"}),
        (["rm", "{files*}"], {"files": ["x", "-rf"]}),
        (["rm", "{file}"], {"file": "x\0y"}),
    ],
)
def test_an_argument_cannot_become_an_option(words, values):
    with pytest.raises(CodedError) as refused:
        Template(words).fill(values)
    assert refused.value.code == "INVALID_SPEC"


def test_a_dash_is_allowed_where_it_cannot_harm_or_is_wanted():
    assert Template(["rm", "--", "{file}"]).fill({"file": "-rf"}) == ["rm", "--", "-rf"]
    assert Template(["ls", "{flag}"], options=["flag"]).fill({"flag": "-l"}) == ["ls", "-l"]
    assert Template(["seq", "{n}"], options=["n"]).fill({"n": -3}) == ["seq", "-3"]


@pytest.mark.parametrize(
    ("words", "options"),
    [("rm {file}", ()), ([], ()), (["{program}", "x"], ()), (["a", "{b"], ()), (["a", "x{b*}"], ()), (["a"], ("b",))],
)
def test_a_template_that_cannot_work_is_refused_at_once(words, options):
    with pytest.raises(ConfigError):
        Template(words, options=options)


# ---------------------------------------------------------------- running


@both
async def test_a_program_gets_its_arguments_and_its_output_is_kept(where, app, conn):
    def build(app):
        define(app, "greet", [*SHELL, 'echo "hello $1"; echo careful >&2; echo "$2"', "greet", "{name}", "{count}"],
               takes={"count": int})  # fmt: skip

    async with working(where, app, build):
        made = await app.tasks["greet"].enqueue("user17; id", count=3)
        row = await ended(conn, made.id)

    assert row["state"] == "done", row["error"]
    assert b'"exit_code":0' in row["result"]
    assert b'"output":"hello user17; id\\n3\\n"' in row["result"]
    lines = await log_lines(conn, made.id)
    assert [line for stream, line in lines if stream == "stdout"] == ["hello user17; id", "3"]
    assert [line for stream, line in lines if stream == "stderr"] == ["careful"]


@both
async def test_lines_arrive_while_it_runs_and_none_is_lost_at_the_end(where, app, conn, tmp_path):
    def build(app):
        define(app, "slow", [*SHELL, f"echo first; while ! test -e {tmp_path}/go; do sleep 0.05; done; seq 2000"])

    async with working(where, app, build):
        made = await app.tasks["slow"].enqueue()

        async def one() -> bool:
            return await log_lines(conn, made.id) == [("stdout", "first")]

        await eventually(one)
        (tmp_path / "go").touch()
        await ended(conn, made.id)

    assert [line for _, line in await log_lines(conn, made.id)] == ["first", *map(str, range(1, 2001))]


@both
async def test_the_exit_code_decides_the_class(where, app, conn):
    def build(app):
        define(app, "fails", [*SHELL, 'echo "$2" >&2; exit "$1"', "x", "{code}", "{words}"], exits={9: "INVALID_SPEC"})

    async with working(where, app, build):
        fails = app.tasks["fails"].using(max_attempts=1)
        spec = await fails.enqueue("9", "whatever")
        auth = await fails.enqueue("1", "Error: invalid API key")
        other = await fails.enqueue("3", "boom")
        rows = [await ended(conn, made.id) for made in (spec, auth, other)]

    assert [row["error"] for row in rows] == [
        "INVALID_SPEC: sh ended with exit code 9: whatever",
        "AUTH_FAILED: sh ended with exit code 1: Error: invalid API key",
        "AGENT_ERROR: sh ended with exit code 3: boom",
    ]


async def test_words_on_stdout_decide_nothing(app, conn):
    define(app, "tests", [*SHELL, "echo unauthorized; echo invalid api key; exit 1"])
    made = await app.tasks["tests"].enqueue()
    await drain(app)

    attempt = await conn.fetchrow("select * from howdah.attempt where id = $1", made.id)
    assert attempt["error"].startswith("AGENT_ERROR")


async def test_an_argument_injection_is_refused_before_anything_runs(app, conn, tmp_path):
    define(app, "touch", ["touch", "{file}"], folder=tmp_path)
    made = await app.tasks["touch"].enqueue("--reference=/etc/passwd")
    await drain(app)

    row = await job(conn, made.id)
    assert row["state"] == "failed"
    assert row["error"].startswith("INVALID_SPEC: argument 'file' begins with a dash")
    assert list(tmp_path.iterdir()) == []


async def test_a_program_that_is_not_there_is_an_invalid_spec(app, conn):
    define(app, "nothing", ["no-such-program-anywhere"])
    made = await app.tasks["nothing"].enqueue()
    await drain(app)
    assert "INVALID_SPEC: there is no program 'no-such-program-anywhere'" in (await job(conn, made.id))["error"]


async def test_a_program_sees_only_what_it_is_given(app, conn, monkeypatch):
    monkeypatch.setenv("SECRET_CANARY", "canary-1")
    monkeypatch.setenv("SHOWN", "yes")
    define(app, "env", ["env"], environment=("PATH", "SHOWN"), variables={"MORE": "1"})
    made = await app.tasks["env"].enqueue()
    await drain(app)

    names = {line.partition("=")[0] for _, line in await log_lines(conn, made.id)}
    assert {"PATH", "SHOWN", "MORE", "HOWDAH_JOB", "HOWDAH_ATTEMPT", "HOME", "TMPDIR"} >= names - {"PWD", "_", "SHLVL"}
    assert {"SHOWN", "MORE", "HOWDAH_JOB"} <= names


async def test_it_runs_in_a_fresh_folder_with_no_input(app, conn):
    define(app, "look", [*SHELL, "pwd; ls -A; cat; touch left"])
    first, second = await app.tasks["look"].enqueue(), await app.tasks["look"].enqueue()
    await drain(app)

    [(_, here)], [(_, there)] = await log_lines(conn, first.id), await log_lines(conn, second.id)
    assert here != there
    assert not Path(here).exists()
    assert not Path(there).exists()


async def test_output_is_bounded(app, conn):
    define(app, "chatty", [sys.executable, "-c", "print('x' * 30_000); print('y' * 200_000)"], keep=1000)
    made = await app.tasks["chatty"].enqueue()
    await drain(app)

    row = await job(conn, made.id)
    assert len(row["result"]) < 1200
    assert max(len(line) for _, line in await log_lines(conn, made.id)) == 10_000


# ---------------------------------------------------------------- the end of it

FAMILY = "trap '' TERM; sleep 300 & echo $$ $! > {file}; wait; sleep 300"
"""A program that ignores TERM, with a child that does not."""


@both
async def test_the_whole_group_is_killed_on_timeout(where, app, conn, tmp_path):
    def build(app):
        words = [*SHELL, FAMILY.replace("{file}", str(tmp_path / "pids"))]
        define(app, "endless", words, grace=0.3, timeout=1.0, max_attempts=1)

    async with working(where, app, build):
        made = await app.tasks["endless"].enqueue()
        pids = await numbers(tmp_path / "pids", 2)
        row = await ended(conn, made.id)
        await gone(*pids)

    assert "TimeoutError: the job ran longer than its timeout of 1 s" in row["error"]


@both
async def test_the_whole_group_is_killed_on_cancel(where, app, conn, tmp_path):
    def build(app):
        define(app, "endless", [*SHELL, FAMILY.replace("{file}", str(tmp_path / "pids"))], grace=0.3)

    async with working(where, app, build):
        made = await app.tasks["endless"].enqueue()
        pids = await numbers(tmp_path / "pids", 2)
        await app.admin.cancel([made.id])
        row = await ended(conn, made.id)
        await gone(*pids)

    assert row["state"] == "cancelled"


async def test_a_program_may_end_by_itself_within_the_grace(tmp_path):
    script = f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; echo ready; sleep 300 & wait"
    ready = asyncio.Event()
    running = asyncio.create_task(
        run([*SHELL, script], folder=tmp_path, environment=ENVIRONMENT, hear=lambda *_: ready.set(), grace=60)
    )
    await asyncio.wait_for(ready.wait(), 30)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (tmp_path / "bye").read_text() == "bye\n"
    assert time.monotonic() - began < 30, "it did not wait for the whole grace"


async def test_what_a_program_leaves_running_ends_with_it(tmp_path):
    done = await run([*SHELL, "sleep 300 & echo $!"], folder=tmp_path, environment=ENVIRONMENT)
    await gone(int(done.stdout))


async def test_a_child_that_left_the_group_keeps_nobody_waiting(tmp_path):
    began = time.monotonic()
    done = await run([*SHELL, "setsid sleep 300 & echo $!"], folder=tmp_path, environment=ENVIRONMENT)
    assert time.monotonic() - began < 60
    os.kill(int(done.stdout), signal.SIGKILL)


async def test_a_program_ends_when_the_process_that_runs_it_is_killed(tmp_path):
    code = f"""
import asyncio, os
from howdah_agent.program.run import run
asyncio.run(run(["sh", "-c", {FAMILY.replace("{file}", str(tmp_path / "pids"))!r}], folder={str(tmp_path)!r},
                environment={{"PATH": os.environ["PATH"]}}, grace=0.3))
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    pids = await numbers(tmp_path / "pids", 2)
    assert all(map(alive, pids))
    worker.kill()
    await worker.wait()
    await gone(*pids)


STUBBORN = "trap '' TERM; pwd > {folder}/where; echo $$ > {folder}/pids; while :; do sleep 0.1; done"


async def test_a_program_is_dead_before_its_job_is_released(app, conn, tmp_path):
    task = define(app, "stubborn", [*SHELL, STUBBORN.replace("{folder}", str(tmp_path))], grace=3.0)
    made = await task.enqueue()
    node = app.node(quick(grace=0.1, lease=30.0))
    running = asyncio.create_task(node.run())
    [pid] = await numbers(tmp_path / "pids", 1)
    node.stop()

    async def released():
        return (await job(conn, made.id))["state"] == "queued"

    await eventually(released)
    assert not alive(pid), "the program runs, and so may another attempt"
    await running
    assert (await job(conn, made.id))["attempt"] == 0
    assert not Path((tmp_path / "where").read_text().strip()).exists()


async def test_the_folder_of_a_program_is_removed_when_its_worker_is_killed(tmp_path):
    code = f"""
import asyncio
from howdah import Howdah
from howdah_agent.executors.command import command
from howdah.job import Job, current
task = command(Howdah(), "stubborn", ["sh", "-c", {STUBBORN.replace("{folder}", str(tmp_path))!r}], grace=0.3)
current.set(Job(1, "default", "stubborn", 1, 1, 1, b"{{}}"))
asyncio.run(task.handler.function())
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    [pid] = await numbers(tmp_path / "pids", 1)
    where = Path((tmp_path / "where").read_text().strip())
    assert where.name.startswith("howdah-")
    (where / "deep" / "er").mkdir(parents=True)
    worker.kill()
    await worker.wait()
    await gone(pid)

    async def removed():
        return not where.exists()

    await eventually(removed)


async def test_a_folder_that_was_named_stays_when_the_worker_is_killed(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    code = f"""
import asyncio, os
from howdah_agent.program.run import run
asyncio.run(run(["sh", "-c", {STUBBORN.replace("{folder}", str(tmp_path))!r}], folder={str(folder)!r},
                environment={{"PATH": os.environ["PATH"]}}, grace=0.3))
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    [pid] = await numbers(tmp_path / "pids", 1)
    worker.kill()
    await worker.wait()
    await gone(pid)
    assert folder.exists()


async def test_the_signal_that_ended_it_is_known(tmp_path):
    done = await run([*SHELL, "kill -SEGV $$"], folder=tmp_path, environment=ENVIRONMENT)
    assert (done.exit_code, done.words) == (-signal.SIGSEGV, "killed by SIGSEGV")
    killed = await run([*SHELL, "kill -KILL $$"], folder=tmp_path, environment=ENVIRONMENT)
    assert killed.exit_code == -signal.SIGKILL


async def test_a_program_needs_a_folder_and_is_found_in_it(tmp_path):
    with pytest.raises(CannotRun, match="there is no folder"):
        await run(["true"], folder=tmp_path / "no", environment=ENVIRONMENT)
    script = tmp_path / "here.sh"
    script.write_text("#!/bin/sh\necho found\n")
    script.chmod(0o700)
    assert (await run(["./here.sh"], folder=tmp_path, environment=ENVIRONMENT)).stdout == "found\n"


# ---------------------------------------------------------------- what any handler may say


@both
async def test_any_handler_may_speak_and_say_how_far_it_is(where, app, conn, tmp_path):
    def build(app):
        @app.task(name="speak")
        async def speak() -> None:
            job_log("one\ntwo", "three\0")
            progress(0.5, "half of it")
            while not (tmp_path / "go").exists():
                await asyncio.sleep(0.02)
            job_log("last", stream="stderr")
            progress(7)

        @app.task(name="thread")
        def thread() -> None:
            job_log("from a thread")

        app.task(name="process", executor="process")(speak_there)

    async with working(where, app, build):
        made = [await app.tasks[name].enqueue() for name in ("speak", "thread", "process")]

        async def far():
            return await conn.fetchrow("select share, note from howdah.progress where id = $1", made[0].id)

        assert tuple(await eventually(far)) == (0.5, "half of it")
        (tmp_path / "go").touch()
        for each in made:
            assert (await ended(conn, each.id))["state"] == "done"

    lines = [("log", "one"), ("log", "two"), ("log", "three\\0"), ("stderr", "last")]
    assert await log_lines(conn, made[0].id) == lines
    assert tuple(await far()) == (1.0, None)
    assert await log_lines(conn, made[1].id) == [("log", "from a thread")]
    assert await log_lines(conn, made[2].id) == [("log", "from a process")]


@both
async def test_a_stream_there_is_not_holds_up_no_other_job(where, app, conn, tmp_path):
    def build(app):
        async def go():
            while not (tmp_path / "go").exists():
                await asyncio.sleep(0.02)

        @app.task(name="odd")
        async def odd() -> None:
            job_log("to nowhere", stream="std\0err")
            (tmp_path / "said").touch()
            await go()

        @app.task(name="even")
        async def even() -> None:
            while not (tmp_path / "said").exists():
                await asyncio.sleep(0.02)
            job_log("heard")
            await go()

    async with working(where, app, build):
        odd, even = [await app.tasks[name].enqueue() for name in ("odd", "even")]

        async def heard():
            return await log_lines(conn, even.id)

        assert await eventually(heard) == [("log", "heard")]
        assert await log_lines(conn, odd.id) == [("log", "to nowhere")]
        (tmp_path / "go").touch()
        for each in (odd, even):
            assert (await ended(conn, each.id))["state"] == "done"


def speak_there() -> None:
    job_log("from a process")


async def test_what_is_said_too_fast_is_counted_and_left_out(app, conn):
    @app.task
    async def flood() -> None:
        for number in range(30_000):
            job_log(str(number))

    made = await flood.enqueue()
    await drain(app)

    lines = [line for _, line in await log_lines(conn, made.id)]
    assert lines[:3] == ["0", "1", "2"]
    assert len(lines) == 10_000


def test_outside_of_a_job_a_line_is_only_logged(caplog):
    with caplog.at_level("INFO", logger="howdah.job"):
        job_log("hello")
        progress(0.5)
    assert caplog.messages == ["hello"]


# ---------------------------------------------------------------- not so fast


async def test_what_is_rate_limited_is_left_alone_by_the_whole_fleet(app, conn):
    runs: list[int] = []

    def build(app):
        @app.task(name="ask")
        async def ask(number: int) -> None:
            runs.append(number)
            raise RateLimited("429", retry_after=600, hold=True)

        @app.task(name="other")
        async def other() -> None:
            return None

    there = Howdah("postgresql://nobody@127.0.0.1:1/nowhere")
    build(app)
    build(there)
    async with serving(app) as plane, run_remote_node(there, plane, slots=1):
        first = await app.tasks["ask"].enqueue(1)
        until = "select extract(epoch from until - now()) from howdah.hold where kind = 'ask'"
        assert 500 < await eventually(lambda: conn.fetchval(until)) <= 600
        await app.tasks["ask"].enqueue(2)
        await ended(conn, (await app.tasks["other"].enqueue()).id)
        assert runs == [1]
        assert (await job(conn, first.id))["state"] == "queued"
        await conn.execute("delete from howdah.hold")

        async def second() -> bool:
            return 2 in runs

        await eventually(second)


async def test_last_words_wait_for_what_is_on_its_way():
    here, go, kept = asyncio.Event(), asyncio.Event(), []

    class Slow:
        async def write_log(self, job: Job, entry: JobLogEntry) -> None:
            here.set()
            await go.wait()
            kept.extend(entry.lines)

        async def record_run(self, job: Job, run: RunRecord) -> None: ...

    buffer, stop, spoken = JobLogBuffer(Slow()), asyncio.Event(), Job(1, "default", "x", 1, 5, 7, b"{}")
    running = asyncio.create_task(buffer.run(stop))
    buffer.write(spoken, JobLogEntry(lines=["one"]))
    await asyncio.wait_for(here.wait(), 30)
    assert buffer.pending
    ending = asyncio.create_task(buffer.flush([spoken]))
    await asyncio.sleep(0.05)
    assert not ending.done(), "the outcome must not be recorded before the line is"
    go.set()
    await asyncio.wait_for(ending, 30)
    assert (kept, buffer.pending) == (["one"], False)
    stop.set()
    await asyncio.wait_for(running, 30)
