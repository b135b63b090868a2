"""Nodes with consumers, in processes of their own, to be killed and frozen.

Run as a program it is such a node: ``python -m kit.consumer_processes`` with its switches in the environment:
HAS, the consumers it has (all of them); PAUSE, how long ``everything`` takes for a batch; FREEZE, freeze this process
at the event that says so; IDLE, the part of the lease after which the server ends a batch nobody drives; FENCE=off,
move checkpoints without a look at whose they are and where they stand; LEADER, as in WorkerOptions.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from howdah import Event, Howdah, Transaction, WorkerOptions
from howdah.events import consumers as events_consumers
from howdah.events.parked import ParkedEvents
from howdah.postgres import sql
from kit.node_processes import NodeProcesses

LEASE = 2.0
HEARTBEAT = 0.4
REBALANCE = 0.5

TABLES = """
create table seen (
    id bigint generated always as identity, consumer text not null, position bigint not null, pid int not null,
    at timestamptz not null default clock_timestamp());
create table balance (stream text primary key, amount bigint not null, version bigint not null);
create table deposit (one int primary key default 1, times bigint not null, amount bigint not null);
insert into deposit (times, amount) values (0, 0);
create table stream (stream text primary key, times bigint not null, version bigint not null, jumps int not null);
create table letter (n bigint not null);
"""
"""The read models; ``seen`` has a row for every event a consumer applied, in the order it did."""

app = Howdah()
PAUSE = float(os.environ.get("PAUSE", "0"))


async def saw(tx: Transaction, consumer: str, *events: Event) -> None:
    await tx.execute(
        "insert into seen (consumer, position, pid) select $1, p, $3 from unnest($2::int8[]) p",
        consumer,
        [event.position for event in events],
        os.getpid(),
    )


@app.consumer("everything", batch=100)
async def everything(events: Sequence[Event], tx: Transaction) -> None:
    """All events, a batch at a time."""
    await saw(tx, "everything", *events)
    await asyncio.sleep(PAUSE)


@app.consumer("balances", only=["Account"], batch=20)
async def balances(event: Event, tx: Transaction) -> None:
    """What every account holds."""
    await saw(tx, "balances", event)
    await tx.execute(
        """insert into balance as b (stream, amount, version) values ($1, $2, $3)
        on conflict (stream) do update set amount = b.amount + excluded.amount, version = excluded.version""",
        event.stream,
        event.data["amount"] if event.type == "Deposited" else -event.data.get("amount", 0),
        event.version,
    )


@app.consumer("deposits", types=["Deposited"], batch=500)
async def deposits(events: Sequence[Event], tx: Transaction) -> None:
    """One row that everybody who handles this must lock."""
    amount = sum(event.data["amount"] for event in events)
    await tx.execute("update deposit set times = times + $1, amount = amount + $2", len(events), amount)
    await saw(tx, "deposits", *events)
    if any(event.data.get("freeze") for event in events):
        freeze()


@app.consumer("streams", partitions=3, batch=30)
async def streams(event: Event, tx: Transaction) -> None:
    """Whether the events of every stream came one after the other."""
    await saw(tx, "streams", event)
    await tx.execute(
        """insert into stream as s (stream, times, version, jumps) values ($1, 1, $2, ($2::int8 <> 1)::int)
        on conflict (stream) do update set times = s.times + 1, version = excluded.version,
            jumps = s.jumps + (excluded.version <> s.version + 1)::int""",
        event.stream,
        event.version,
    )


@app.consumer("letters", only=["Order"], batch=10)
async def letters(event: Event, tx: Transaction) -> None:
    """A job for some of the events."""
    await saw(tx, "letters", event)
    if event.version % 3 == 1:
        await letter.using(conn=tx).enqueue(event.position)


@app.consumer("closings", types=["Closed"], batch=1)
async def closings(event: Event, tx: Transaction) -> None:
    """Slow, one at a time."""
    await saw(tx, "closings", event)
    if event.data.get("freeze"):
        freeze()
    await asyncio.sleep(random.uniform(0, 0.01))


if "picky" in os.environ.get("HAS", ""):

    @app.consumer("picky", on_failure="park", max_failures=1)
    async def picky(event: Event, tx: Transaction) -> None:
        """Cannot bear some events."""
        if event.data.get("freeze"):
            raise ValueError("on purpose")
        await saw(tx, "picky", event)


@app.task(transactional=True, max_attempts=50)
async def letter(tx: Transaction, n: int) -> None:
    await tx.execute("insert into letter (n) values ($1)", n)


def freeze() -> None:
    """Stop this process, once, if it is the one that does so."""
    if os.environ.pop("FREEZE", None):
        os.kill(os.getpid(), signal.SIGSTOP)


def freeze_while_parking() -> None:
    """Stop this process after it parked an event and before it commits that."""
    park = ParkedEvents.park

    async def frozen(self: ParkedEvents, position: int, words: Any, failures: int, settle: Any) -> None:
        async def settle_and_freeze(conn: Any) -> None:
            await settle(conn)
            freeze()

        await park(self, position, words, failures, settle_and_freeze)

    ParkedEvents.park = frozen  # type: ignore[method-assign]


class ConsumerProcesses(NodeProcesses):
    """Processes that consume on one database."""

    def start(self, **switches: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, **self._switches, **switches, "HOWDAH_DSN": self._dsn}
        env["PYTHONPATH"] = str(Path(__file__).parents[1])
        process = subprocess.Popen([sys.executable, "-m", "kit.consumer_processes"], env=env)
        self.nodes.append(process)
        return process


UNFENCED = """update {schema}.checkpoint k set position = greatest(k.position, $6), handled = k.handled + $7, rate = $8
where k.consumer = $1 and k.part = $2::int and ($3::int, $4::int8, $5::int8, $9::int8) is not null
returning true as settled"""


def without_fence() -> None:
    """Put the statement that moves a checkpoint in the place of one that asks no questions."""
    load = sql.load

    def careless(room: str, **names: str) -> Mapping[str, str]:
        statements = dict(load(room, **names))
        if room == "howdah.events":
            statements["move_checkpoint"] = sql.render(UNFENCED, names)
        return statements

    sql.load = careless


async def main() -> None:
    switches = os.environ
    if switches.get("HAS"):
        for name in set(app.consumers) - set(switches["HAS"].split(",")):
            del app.consumers[name]
    if switches.get("IDLE"):
        events_consumers.IDLE = float(switches["IDLE"])
    if switches.get("FREEZE"):
        freeze_while_parking()
    if switches.get("FENCE") == "off":
        without_fence()
    options = WorkerOptions(
        slots=4,
        lease=LEASE,
        heartbeat=HEARTBEAT,
        rebalance=REBALANCE,
        poll=0.5,
        grace=5,
        leader="advisory" if switches.get("LEADER") == "advisory" else "lease",
    )
    running_node = app.node(options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running_node.stop)
    await running_node.run()


if __name__ == "__main__":
    from kit import consumer_processes

    consumer_processes.app.connect_to(os.environ["HOWDAH_DSN"])
    asyncio.run(consumer_processes.main())
