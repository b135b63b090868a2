"""A script whose handlers run in processes: a child loads it to find them, and must not run its main part again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from howdah import Howdah

pytestmark = pytest.mark.anyio

SCRIPT = """
import asyncio, os, sys
from howdah import Howdah, WorkerOptions

app = Howdah(os.environ["HOWDAH_DSN"])

@app.task(executor="process", max_attempts=1)
def crunch(n: int) -> int:
    return n * n

async def main():
    await crunch.enqueue(7)
    await app.work(WorkerOptions(drain=True))
    await app.close()

"""


OWN_CONNECTION = """
import psycopg
with psycopg.connect(os.environ["HOWDAH_DSN"]) as conn:
    app.enqueue_sync(crunch.job(7), conn)

if __name__ == "__main__":
    asyncio.run(main())
"""


def run(script: Path, dsn: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "HOWDAH_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=120,
    )


async def test_a_script_without_a_guard_is_rejected_and_enqueues_once(tmp_path, database, app: Howdah):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "asyncio.run(main())\n")

    ended = run(script, database.dsn)

    [job] = await app.admin.list()
    assert job.state == "failed", ended.stderr
    assert "script.py works with the database when it is loaded" in job.error
    assert 'if __name__ == "__main__":' in job.error
    assert ended.returncode == 0


async def test_a_script_with_a_guard_works(tmp_path, database, app: Howdah):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + 'if __name__ == "__main__":\n    asyncio.run(main())\n')

    ended = run(script, database.dsn)

    [job] = await app.admin.list()
    assert (job.state, job.result) == ("done", 49), ended.stderr


async def test_enqueueing_in_a_connection_of_ones_own_is_rejected_as_well(tmp_path, database, app: Howdah):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("    await crunch.enqueue(7)\n", "") + OWN_CONNECTION)

    ended = run(script, database.dsn)

    [job] = await app.admin.list()
    assert job.state == "failed", ended.stderr
    assert job.error.startswith("ConfigError: ")
