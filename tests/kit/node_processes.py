"""Nodes in processes of their own, to be killed and frozen.

Run as a program it is such a node: ``python -m kit.node_processes DSN`` with its switches in the environment.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from howdah import Backoff, Howdah, Job, Transaction, WorkerOptions, current_job
from howdah.jobs.transact import TransactionalAck
from howdah.outcome import Ack
from howdah.worker.worker import Worker

LEASE = 2.0
HEARTBEAT = 0.4

app = Howdah()


@app.task(transactional=True, max_attempts=20, retry=Backoff(first=0.1))
async def effect(tx: Transaction, n: int, pause: float = 0.0) -> None:
    """Leaves one mark, some time after it started."""
    await asyncio.sleep(pause)
    await tx.execute(
        "insert into mark (n, attempt, token) values ($1, $2, $3)", n, current_job().attempt, current_job().token
    )


@app.task(transactional=True, max_attempts=20)
async def frozen(tx: Transaction, n: int) -> None:
    """Leaves its mark, then freezes its own process: the first time only."""
    await tx.execute(
        "insert into mark (n, attempt, token) values ($1, $2, $3)", n, current_job().attempt, current_job().token
    )
    if current_job().attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


@app.task(transactional=True, batch=100, max_attempts=20, retry=Backoff(first=0.1))
async def effects(tx: Transaction, n: list[int], jobs: list[Job]) -> None:
    """Leaves one mark for each job, some time after it started; every 97th fails the first time."""
    await asyncio.sleep(0.02)
    await tx.executemany(
        "insert into mark (n, attempt, token) values ($1, $2, $3)",
        [(each, job.attempt, job.token) for each, job in zip(n, jobs, strict=True)],
    )
    if any(each % 97 == 0 and job.attempt == 1 for each, job in zip(n, jobs, strict=True)):
        raise RuntimeError("a bad job")


@app.task(transactional=True, batch=10, max_attempts=20)
async def frozen_batch(tx: Transaction, n: list[int], jobs: list[Job]) -> None:
    """Leaves its marks, then freezes its own process: the first time only."""
    await tx.executemany(
        "insert into mark (n, attempt, token) values ($1, $2, $3)",
        [(each, job.attempt, job.token) for each, job in zip(n, jobs, strict=True)],
    )
    if jobs[0].attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


@app.task(max_attempts=3)
async def deadly(path: str) -> None:
    """Kills its process, every time."""
    with open(path, "a") as file:
        file.write(f"{current_job().attempt}\n")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def plain(n: int) -> None: ...


class NodeProcesses:
    """Processes that work on one database."""

    def __init__(self, dsn: str, **switches: str) -> None:
        self._dsn = dsn
        self._switches = switches
        self.nodes: list[subprocess.Popen[bytes]] = []

    def start(self, **switches: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, **self._switches, **switches, "HOWDAH_DSN": self._dsn}
        env["PYTHONPATH"] = str(Path(__file__).parents[1])
        process = subprocess.Popen([sys.executable, "-m", "kit.node_processes"], env=env)
        self.nodes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.nodes.remove(process)

    def kill_one(self) -> None:
        self.kill(random.choice(self.nodes))

    def __enter__(self) -> NodeProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.nodes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


async def main() -> None:
    if os.environ.get("CLOCK"):
        ahead, real = float(os.environ["CLOCK"]), time.time
        time.time = lambda: real() + ahead
    if os.environ.get("IDLE"):
        import howdah.jobs.store

        howdah.jobs.store.IDLE = float(os.environ["IDLE"])
    slots = int(os.environ.get("SLOTS", "10"))
    lease = float(os.environ.get("LEASE", LEASE))
    options = WorkerOptions(slots=slots, lease=lease, heartbeat=HEARTBEAT, poll=0.5, grace=5)
    running_node = app.node(options)
    if os.environ.get("HEEDLESS"):  # it neither hears nor notices that its leases are lost
        Worker.lose = Worker.cancel = Worker.stop_unrenewed = lambda *_: None  # type: ignore[method-assign]
    if os.environ.get("UNFENCED"):  # a batch does not check its leases

        async def record(_self: object, conn: Any, acks: Sequence[Ack]) -> list[Ack]:
            rows = [(ack.job.id, ack.job.attempt) for ack in acks]
            insert = "insert into howdah.done (id, attempt, state) values ($1, $2, 'd') on conflict do nothing"
            await conn.executemany(insert, rows)
            return []

        TransactionalAck._record = record  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, running_node.stop)
    await running_node.run()


if __name__ == "__main__":
    from kit import node_processes

    node_processes.app.connect_to(os.environ["HOWDAH_DSN"])
    asyncio.run(node_processes.main())
