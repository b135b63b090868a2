"""Deployments: a migration while everybody works, and code that meets the schema of another release."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import Howdah, SchemaError
from howdah.cli.output import explain
from howdah.postgres import migrate
from howdah.postgres.database import Database
from kit.command import Command
from kit.lock_waits import LockWaits, OpenEnqueue
from kit.node import eventually
from kit.node_processes import NodeProcesses, effect
from kit.node_processes import app as farm_app
from kit.roles import owner, worker
from kit.serve_process import ControlPlaneProcess

pytestmark = pytest.mark.anyio

STALL = 2.0
"""Seconds nobody may have to wait for the locks of a migration."""
NEXT = """
alter table {schema}.node add column zone text not null default '';
create table {schema}.badge (node int primary key, given_at timestamptz not null default now());
create index job_by_kind on {schema}.job (kind, id);
do $howdah$ declare body text; begin
    for body in
        select pg_get_functiondef(p.oid) from pg_proc p
        where p.pronamespace = {'schema'}::regnamespace
          and p.proname in
            ('enqueue', 'ack', 'ack_in_transaction', 'announce_sleep', 'requeue_leased', 'reset', 'notify_workers')
    loop
        execute body;
    end loop;
end $howdah$;
"""
"""What a release brings: a column, a table, an index on the largest table, hot functions anew."""


@pytest.fixture
def coming(tmp_path, monkeypatch):
    """The migration of the release to come; gives its number."""
    known = migrate.migrations()
    number = migrate.needed() + 1
    (tmp_path / f"{number:04}_coming.sql").write_text(NEXT)
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, *migrate.read(tmp_path)))
    return number


@pytest.fixture
async def clients(database, conn):
    """Three who enqueue all the time; gives how often they did."""
    app = Howdah(database.dsn)
    made, over = [], asyncio.Event()

    @app.task
    async def small(n: int) -> None: ...

    async def client():
        while not over.is_set():
            made.append((await small.enqueue(len(made))).id)
            await asyncio.sleep(0.01)

    busy = [asyncio.create_task(client()) for _ in range(3)]
    await eventually(lambda: _more(made, 0))
    yield made
    over.set()
    await asyncio.gather(*busy)
    await app.close()
    assert await conn.fetchval("select count(*) from howdah.job where id = any($1)", made) == len(made)


async def _more(what, than):
    return len(what) > than


@pytest.fixture
async def holder(direct):
    """Somebody of the role that migrates: when others began, not every role may see."""
    conn = await owner(worker(direct)).connect("holder")
    holder = OpenEnqueue(conn)
    await holder.hold()
    yield holder
    await conn.close()


async def half_done(conn):
    return await conn.fetchval(
        "select to_regclass('howdah.badge') is not null or to_regclass('howdah.job_by_kind') is not null"
        " or exists (select from pg_attribute where attrelid = 'howdah.node'::regclass and attname = 'zone')"
    )


@pytest.mark.stories
async def test_a_migration_holds_up_nobody_and_nodes_of_the_release_before_go_on(database, direct, conn, coming):
    farm_app.connect_to(database.dsn)
    await conn.execute("create table mark (n int not null, attempt int, token bigint)")
    made, over = [], asyncio.Event()

    async def client():
        while not over.is_set():
            made.append(n := len(made))
            await effect.enqueue(n, pause=0.01)
            await asyncio.sleep(0.01)

    async def both_work(since):
        return await conn.fetchval("select count(distinct node) from howdah.done where id > $1", since) == 2

    with NodeProcesses(database.dsn, SLOTS="4", LEASE="10") as processes:
        nodes = [processes.start(), processes.start()]
        busy = [asyncio.create_task(client()) for _ in range(3)]
        await eventually(lambda: both_work(0))
        async with LockWaits(direct, besides="migrate") as waits:
            [step] = await migrate.migrate(owner(database))
        assert step.number == coming
        assert await conn.fetchval("select max(number) from howdah.migration") == coming
        assert waits.longest < STALL
        last = await conn.fetchval("select max(id) from howdah.job")
        await eventually(lambda: both_work(last))

        # what they knew of the old schema is gone with their connections; they go on all the same
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and application_name ~ '^howdah (claim|ack|heartbeat|listen|reset)$'"
        )
        last = await conn.fetchval("select max(id) from howdah.job")
        await eventually(lambda: both_work(last))
        over.set()
        await asyncio.gather(*busy)
        await eventually(lambda: _all_marked(conn, len(made)))
        assert [process.poll() for process in nodes] == [None, None]

    assert await conn.fetchval("select count(*) from mark") == len(made)
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0, "nobody noticed"
    await farm_app.close()


async def _all_marked(conn, n):
    return await conn.fetchval("select count(distinct n) from mark") == n


async def test_a_migration_that_cannot_have_its_locks_changes_nothing_and_says_why(
    database, direct, conn, coming, clients, holder
):
    enqueued = len(clients)
    async with LockWaits(direct, besides="migrate") as waits:
        with pytest.raises(SchemaError, match="is in use, nothing was changed: process") as refusal:
            await migrate.migrate(owner(database))
    message, code = explain(refusal.value)
    assert f"process {holder.pid} (howdah holder) has held locks on its tables for " in message
    assert message.endswith("run `howdah migrate` again")
    assert code == 4
    assert waits.held_up
    assert waits.longest < STALL
    assert not await half_done(conn)
    assert await migrate.version(database, conn) == coming - 1
    assert len(clients) > enqueued, "they went on"

    await holder.commit()
    assert [step.number for step in await migrate.migrate(owner(database))] == [coming]
    assert await half_done(conn)
    assert await conn.fetchval("select count(*) from howdah.jobs where kind = 'held'") == 1


async def test_who_holds_the_locks_is_named_also_by_an_owner_who_cannot_see_since_when(
    roles, direct, coming, monkeypatch
):
    monkeypatch.setattr(migrate, "TRIES", 1)
    early, late = await direct.connect("early"), await direct.connect("late")
    for conn in (early, late):
        await OpenEnqueue(conn).hold()
    with pytest.raises(SchemaError) as refusal:
        await migrate.migrate(Database(roles("howdah_owner")))
    message = f"process {early.get_server_pid()} (howdah early) has held locks on its tables; let that end"
    assert message in str(refusal.value)
    for conn in (late, early):
        await conn.close()


@pytest.mark.parametrize("tries", [1, 3])
async def test_a_lock_that_is_let_go_soon_is_waited_out(
    database, direct, conn, coming, clients, holder, tries, monkeypatch
):
    """The control: who tries once has to be called again."""
    monkeypatch.setattr(migrate, "TRIES", tries)
    async with LockWaits(direct, besides="migrate") as waits:

        async def held_up():
            return waits.held_up

        async def gave_up():
            return not await conn.fetchval(
                "select count(*) from pg_locks join pg_stat_activity using (pid)"
                " where not granted and application_name = 'howdah migrate' and datname = current_database()"
            )

        migrating = asyncio.create_task(migrate.migrate(owner(database)))
        await eventually(held_up)
        await eventually(gave_up)
        await holder.commit()
        if tries == 1:
            with pytest.raises(SchemaError):
                await migrating
        else:
            assert len(await migrating) == 1
    assert await half_done(conn) == (tries > 1)


async def test_without_its_short_patience_a_migration_would_hold_up_everybody(
    database, direct, coming, clients, holder, monkeypatch
):
    """The control: this is what the bound above would see."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "60s")
    async with LockWaits(direct, besides="migrate") as waits:
        migrating = asyncio.create_task(migrate.migrate(owner(database)))

        async def too_long():
            return waits.longest > STALL

        await eventually(too_long)
        await holder.commit()
        await migrating


async def test_whoever_migrates_at_the_same_time_waits_for_the_other(direct, monkeypatch):
    known = migrate.migrations()
    slow = migrate.Migration(migrate.needed() + 1, "slow", "select pg_sleep(2);")
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, slow))
    monkeypatch.setattr(migrate, "TRIES", 1)
    began = time.monotonic()
    ran = await asyncio.gather(*(migrate.migrate(direct) for _ in range(3)))
    assert sorted(len(steps) for steps in ran) == [0, 0, 1]
    assert time.monotonic() - began > 2


# ---------------------------------------------------------------- code and schema of two releases


@pytest.mark.parametrize("compatible", [True, False])
async def test_a_node_of_the_release_before_starts_on_a_schema_that_works_with_it(
    direct, tmp_path, monkeypatch, compatible
):
    """The commands are those of this release; the test migrates with that of the next one."""
    known, this = migrate.migrations(), migrate.needed()
    says = f"-- works from: {this}\n" if compatible else ""
    (tmp_path / f"{this + 1:04}_coming.sql").write_text(says + NEXT)
    schema, words = Database(direct.dsn, schema="rolled"), ("--schema", "rolled")
    await migrate.migrate(schema)
    with monkeypatch.context() as release:
        release.setattr(migrate, "migrations", lambda: (*known, *migrate.read(tmp_path)))
        [step] = await migrate.migrate(schema)
        assert step.works_from == (this if compatible else this + 1)
        await migrate.check(schema)
    facts = f"works with code from version {step.works_from} on"
    app = Howdah(direct.dsn, schema="rolled")

    @app.task
    async def nap(seconds: float) -> None: ...

    made = await nap.enqueue(0)
    conn = await schema.connect("test")
    code = 0 if compatible else 4
    for command in (("migrate",), ("migrate", "--check"), ("doctor",)):
        with Command(*command, *words, dsn=schema.dsn) as ran:
            ended = ran.ends()
            assert facts in " ".join(ran.output.split())
            if command != ("doctor",):
                assert ended == code, ran.output
    for _ in range(2):  # it starts, and starts again
        with Command("worker", "-a", "kit.command_app:app", "--drain", *words, dsn=schema.dsn) as worker:
            assert worker.ends() == code, worker.output
            assert (facts in worker.output) == (not compatible)
    state = await conn.fetchval("select state from rolled.jobs where id = $1", made.id)
    assert state == ("done" if compatible else "queued")
    assert await conn.fetchval("select max(number) from rolled.migration") == this + 1
    await conn.close()
    await app.close()


@pytest.mark.parametrize(
    ("release", "advice"), [("older", "run `howdah migrate`"), ("newer", "upgrade howdah")], ids=["older", "newer"]
)
async def test_nobody_starts_on_another_release_and_clients_go_on(direct, coming, monkeypatch, release, advice):
    known = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: known[:-2] if release == "older" else known)
    schema = Database(direct.dsn, schema=release)
    await migrate.migrate(schema)
    app = Howdah(direct.dsn, schema=release)

    @app.task
    async def nap(seconds: float) -> None: ...

    made = [await nap.enqueue(0), *await app.enqueue_many([nap.job(0), nap.job(0)])]
    words = ("--schema", release)
    with (
        Command("worker", "-a", "kit.command_app:app", *words, dsn=schema.dsn) as worker,
        ControlPlaneProcess(*words, dsn=schema.dsn) as control,
    ):
        for process in (worker, control):
            assert process.ends() == 4, process.output
            assert advice in process.output
            assert "Traceback" not in process.output
    conn = await schema.connect("test")
    rows = await conn.fetch(f"select state, attempt from {release}.jobs where id = any($1)", [each.id for each in made])
    assert [tuple(row) for row in rows] == [("queued", 0)] * 3
    assert await conn.fetchval(f"select count(*) from {release}.node") == 0
    await conn.close()
    await app.close()
