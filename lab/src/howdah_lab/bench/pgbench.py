"""Appends by pgbench, so that no Python client limits the rate."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from howdah.errors import ConfigError, HowdahError
from howdah.postgres.embedded import server as embedded
from howdah_lab.bench import events
from howdah_lab.bench.append_variants import SLICES, AppendVariants
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.scenario import Plan

RUN_TIMEOUT = 300.0
"""Seconds."""
MORE = 5
"""Factor for the events of a round: pgbench is much faster than a client in Python."""


def find() -> Path | None:
    """Return the path of pgbench: beside the embedded PostgreSQL, or on PATH."""
    try:
        beside = embedded.find().folder / "pgbench"
    except ConfigError:
        beside = None
    if beside is not None and beside.exists():
        return beside
    found = shutil.which("pgbench")
    return Path(found) if found else None


async def append(plan: Plan, clients: int, each: int) -> list[Figure]:
    """Single events by so many clients; nothing when there is no pgbench on this machine."""
    program = find()
    if program is None:
        return []
    each = max(1, each * MORE // SLICES)
    before, variants = await events.counted(plan), AppendVariants()
    ours = partial(_run, plan, program, "pgbench_append", clients, each)
    plain = partial(_run, plan, program, "pgbench_insert", clients, each)
    for _ in range(plan.rounds):
        await variants.round(plan, ours, plain)
        plan.tick()
    made = clients * each * SLICES * plan.rounds
    await events.check(plan, events=before.events + 2 * made, plain=before.plain + made)
    return variants.figures(f"{clients} pgbench clients x 1")


async def run_script(program: Path, dsn: str, script: str, *, clients: int, each: int, **defined: int) -> float:
    """Let so many clients run a script so many times; returns transactions a second."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        address, secret = _without_password(dsn)
        process = await asyncio.create_subprocess_exec(
            program,
            *("--no-vacuum", "--protocol=prepared", f"--client={clients}", f"--jobs={min(clients, 2)}"),
            *(f"--define={name}={value}" for name, value in defined.items()),
            *(f"--transactions={each}", f"--file={file.name}", address),
            stdout=PIPE,
            stderr=STDOUT,
            env=os.environ | secret,
        )
        try:
            output = (await asyncio.wait_for(process.communicate(), RUN_TIMEOUT))[0].decode(errors="replace")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    rate = re.search(r"tps = ([\d.]+)", output)
    if process.returncode or rate is None:
        raise HowdahError(f"pgbench ended with code {process.returncode}; its output:\n{output[-1000:]}")
    return float(rate[1])


async def _run(plan: Plan, program: Path, script: str, clients: int, each: int) -> float:
    text, dsn = events.statements(plan)[script], plan.schema.database.dsn
    streams = max(1, clients * each // events.PER_STREAM)
    return await run_script(program, dsn, text, clients=clients, each=each, streams=streams)


def _without_password(dsn: str) -> tuple[str, dict[str, str]]:
    """The DSN without its password, which other users of the machine could see; and the password."""
    parts = urlsplit(dsn)
    if not parts.password:
        return dsn, {}
    user, _, host = parts.netloc.rpartition("@")
    address = parts._replace(netloc=f"{user.partition(':')[0]}@{host}").geturl()
    return address, {"PGPASSWORD": unquote(parts.password)}
