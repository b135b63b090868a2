"""Run the explorer by hand for as long as you like: ``scripts/explore --minutes 10``."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.explore import Explorer
from kit.explore_worlds import WORLDS, prepared

SETTINGS = {"fsync": "off", "autovacuum_naptime": "5s"}


@asynccontextmanager
async def fresh(server: Any, name: str) -> AsyncIterator[Database]:
    conn = await Database(server.dsn).connect("explore")
    try:
        await conn.execute(f'create database "{name}"')
        database = Database(server.dsn_for(name))
        await migrate.migrate(database)
        yield database
    finally:
        await conn.close()


async def explore(server: Any, args: argparse.Namespace) -> int:
    """Explore each world for its part of the time; returns the number of findings."""
    found = 0
    only = set(args.only.split(",")) if args.only else None
    for name in args.world or WORLDS:
        async with fresh(server, name) as database, prepared(name, database) as (world, conns):
            explorer = Explorer(
                world, conns, args.seed, (lambda pair: bool(only & {form.act for form in pair})) if only else None
            )
            began = time.monotonic()
            until = began + args.minutes * 60 / len(args.world or WORLDS)
            findings = await explorer.explore(lambda until=until: time.monotonic() < until, stop=args.findings)
            for finding in findings:
                print(f"  {finding}", flush=True)
            seconds = time.monotonic() - began
            seen = explorer.pairs.values()
            print(
                f"{name}: {explorer.rounds} rounds in {seconds:.0f} s, {len(seen)} pairs, each at least"
                f" {min(seen, default=0)} times, {len(findings)} findings, seed {args.seed}",
                flush=True,
            )
            print("  errors of the losers: " + ", ".join(f"{n} {what}" for what, n in explorer.errors.most_common(20)))
            found += len(findings)
    return found


def main() -> None:
    """Read the arguments and explore on a server of its own."""
    parser = argparse.ArgumentParser(prog="scripts/explore", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="time for all worlds together (default 10)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**31), help="seed of all choices (default random)"
    )
    parser.add_argument("--world", action="append", choices=list(WORLDS), help="only this world; may be repeated")
    parser.add_argument("--only", help="only pairs with one of these acts, such as ack,reset")
    parser.add_argument("--findings", type=int, default=20, help="stop a world after so many findings (default 20)")
    args = parser.parse_args()
    with embedded.start(version=18, settings=SETTINGS) as server:
        raise SystemExit(1 if asyncio.run(explore(server, args)) else 0)


if __name__ == "__main__":
    main()
