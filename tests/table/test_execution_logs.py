"""What attempts log ends up in their rows."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from howdah import Transaction, current_job
from howdah.table import execution_log as journal
from kit.node import drain, eventually, node
from table.ddl import ddl

pytestmark = pytest.mark.anyio


async def entries(conn, id=1):
    logs = await conn.fetchval("select execution_logs from uploads where id = $1", id)
    return [msgspec.json.decode(entry) for entry in logs or []]


@pytest.mark.parametrize("how", ["async", "thread", "transactional"])
async def test_steps_are_kept_with_their_output(app, uploads, rows, how):
    table = app.table("uploads", transactional=how == "transactional")

    async def steps(record) -> None:
        async with table.log("clone", command=["git", "clone", "https://me:secret@host/x"]) as entry:
            entry.write("line 1\n")
            entry.write(b"line 2\0\xff\n")
        with table.log("build") as entry:
            entry.exit_code = 3

    def in_thread(record) -> None:
        with table.log("clone", command=["git", "clone", "https://me:secret@host/x"]) as entry:
            entry.write("line 1\n")
            entry.write(b"line 2\0\xff\n")
        with table.log("build") as entry:
            entry.exit_code = 3

    async def in_transaction(record, tx: Transaction) -> None:
        await steps(record)

    table.handler({"async": steps, "thread": in_thread, "transactional": in_transaction}[how])
    await rows.add(3)
    await drain(app)

    assert await rows.states() == ["completed"] * 3
    for id in (1, 2, 3):
        clone, build = await entries(uploads, id)
        assert clone["key"] == "clone"
        assert clone["command"][:2] == ["git", "clone"]
        assert "secret" not in clone["command"][2]
        assert clone["out"] == "line 1\nline 2\\0\ufffd\n"
        assert (clone["exitCode"], build["exitCode"]) == (0, 3)
        assert clone["durationMs"] >= 0
        assert clone["startTime"].endswith("+00:00")


async def test_a_running_step_is_seen_and_written_seldom(app, uploads, rows):
    await uploads.execute(
        "create table writes (n int); create function told() returns trigger language plpgsql as $$"
        " begin insert into writes values (1); return new; end $$;"
        " create trigger told after update of execution_logs on uploads for each row"
        " when (new.execution_logs is not null) execute function told()"
    )
    table = app.table("uploads")
    go = asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        async with table.log("long") as entry:
            for n in range(500):
                entry.write(f"{n}\n")
                await asyncio.sleep(0.001)
            await go.wait()
            raise ValueError("no")

    await rows.add()
    async with node(app):
        await eventually(lambda: seen(uploads))
        running = await entries(uploads)
        assert running[0]["exitCode"] is None
        go.set()
        await eventually(lambda: errored(rows))
    assert (await entries(uploads))[0]["exitCode"] == 1
    assert await uploads.fetchval("select count(*) from writes") <= 4


async def seen(conn):
    logs = await entries(conn)
    return logs and "499" in logs[0]["out"]


async def errored(rows):
    return await rows.states() == ["errored"]


async def test_only_the_last_attempt_is_kept_and_output_is_bounded(app, uploads, rows):
    table = app.table("uploads", retry_after=0)

    @table.handler
    async def execute(record) -> None:
        for n in range(30):
            with table.log(f"{current_job().attempt}.{n}") as entry:
                entry.write("x" * 100_000)
        if current_job().attempt == 1:
            raise ValueError

    await rows.add()
    async with node(app):
        await eventually(lambda: completed(rows))
    logs = await entries(uploads)
    assert {entry["key"].split(".")[0] for entry in logs} == {"2"}
    assert all(len(entry["out"]) <= journal.LARGEST_ENTRY + 100 for entry in logs)
    assert sum(len(entry["out"]) for entry in logs) <= journal.LARGEST_ROW + 30 * 100
    assert "is cut" in logs[0]["out"]


async def completed(rows):
    return await rows.states() == ["completed"]


async def test_a_zombie_logs_nothing(app, uploads, rows, store_for):
    table = app.table("uploads")
    await rows.add()
    slow, fast = await store_for(table), await store_for(table)
    [late] = await slow.claim(1, {})
    await rows.silence()
    await fast.reset(10)
    await fast.claim(1, {})

    await slow.log([((late.token, late.id), '[{"key":"zombie"}]')])
    assert await entries(uploads) == []


async def test_logs_may_be_jsonb_and_states_varchar(app, conn, rows):
    await conn.execute(ddl().replace("json[]", "jsonb[]").replace("text not null default 'queued'", "varchar"))
    await conn.execute("insert into uploads (state) values ('queued')")
    table = app.table("uploads")

    @table.handler
    async def execute(record) -> None:
        with table.log("step"):
            pass

    await drain(app)
    assert await rows.states() == ["completed"]
    assert await conn.fetchval("select execution_logs[1] ->> 'key' from uploads") == "step"


@pytest.mark.parametrize("transactional", [True, False])
async def test_a_log_takes_whatever_a_command_is_made_of(app, uploads, rows, transactional):
    table = app.table("uploads", transactional=transactional, max_attempts=1)

    async def steps():
        command = ["git", Path("/repo"), 7, b"\xff", "a\0b", "\ud800"]
        async with table.log("clone", command=command) as entry:
            entry.write("out\0\ud800")

    if transactional:

        @table.handler
        async def execute(record, tx: Transaction) -> None:
            await steps()
    else:

        @table.handler
        async def execute(record) -> None:
            await steps()

    await rows.add()
    await drain(app)
    row = await rows.one()
    assert (row["state"], row["failure_message"]) == ("completed", None)
    [entry] = await entries(uploads)
    assert entry["command"] == ["git", "/repo", "7", "\N{REPLACEMENT CHARACTER}", "a\\0b", "?"]
    assert entry["out"] == "out\\0?"


class Mute:
    """A value that cannot be made text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Number(int):
    """A number that the encoder does not know."""


@pytest.mark.parametrize("transactional", [True, False])
async def test_no_value_in_a_log_fails_a_row(app, uploads, rows, transactional):
    table = app.table("uploads", transactional=transactional, max_attempts=1)

    async def steps():
        async with table.log(Mute(), command=[Mute(), "x" * 1_000_000, *["word"] * 100_000]) as entry:
            entry.exit_code = Number(3)
        for code in (10**5000, Mute(), signal.SIGTERM, 1.5):
            async with table.log("code") as entry:
                entry.exit_code = code

    if transactional:

        @table.handler
        async def execute(record, tx: Transaction) -> None:
            await steps()
    else:

        @table.handler
        async def execute(record) -> None:
            await steps()

    await rows.add()
    await drain(app)
    row = await rows.one()
    assert (row["state"], row["failure_message"]) == ("completed", None)
    first, *others = await entries(uploads)
    assert len(msgspec.json.encode(first)) < 2 * journal.LARGEST_ENTRY
    assert first["exitCode"] == 3
    assert first["command"][-1].endswith("words cut …")
    assert [entry["exitCode"] for entry in others][2:] == [15, "1.5"]
