"""A node on a table, to be frozen and killed: ``python -m table.zombie`` with its switches in the environment."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from howdah import Budget, Howdah, Transaction, WorkerOptions
from howdah.table import transact
from howdah.table.statement import read
from howdah.worker.worker import Worker

app = Howdah()
TRANSACTIONAL = bool(os.environ.get("TRANSACTIONAL"))
BUDGET = Budget(load=400, cost={"load": "n"}) if os.environ.get("BUDGET") else None
table = app.table("uploads", transactional=TRANSACTIONAL, stalled_after=2.0, heartbeat=0.4, poll=0.3, budget=BUDGET)


def freeze() -> None:
    """Stop this process, the first time."""
    once = os.environ.get("ONCE")
    if once and not Path(once).exists():
        Path(once).touch()
        os.kill(os.getpid(), signal.SIGSTOP)


async def leased(record: dict[str, int]) -> None:
    conn = await app.database.connect("mark")
    await conn.execute("insert into mark values ($1, $2)", record["n"], os.getpid())
    await conn.close()
    freeze()


async def transacted(record: dict[str, int], tx: Transaction) -> None:
    await asyncio.sleep(float(os.environ.get("PAUSE", "0")))
    await tx.execute("insert into mark values ($1, $2)", record["n"], os.getpid())
    freeze()


async def main() -> None:
    # it is deaf to its heartbeat and to the server's guard: the fence alone must hold
    transact.IDLE = 100.0
    Worker.lose = Worker.lose_jobs = Worker.cancel = lambda *_: None  # type: ignore[method-assign,assignment]
    if not os.environ.get("FENCE"):
        files = read()
        files["ack_in_transaction"] = files["ack_in_transaction"].split("  and t.{lease_token}")[0] + (
            "  and $2::int8 is not null\nreturning t.{id} as id"
        )
    await app.node(WorkerOptions(slots=5, lease=2.0, heartbeat=0.4, poll=0.5, grace=1)).run()


if __name__ == "__main__":
    table.handler(transacted if TRANSACTIONAL else leased)
    asyncio.run(main())
