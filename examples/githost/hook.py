"""The post-receive hook: git runs it in the repository, with one line `before after ref` for every ref pushed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncpg

from app import app, record_push


async def main() -> int:
    """Record every ref. Git has stored the push already, so a ref that cannot be recorded must not stop the others."""
    missed = 0
    conn = await asyncpg.connect(app.database.dsn)
    for line in sys.stdin:
        before, after, ref = line.split()
        try:
            event = await record_push(conn, str(Path.cwd()), ref, before, after)
            print(f"push event {event}: {ref}")
        except Exception as error:
            print(f"{ref} is pushed, but not noted: {error}")
            missed = 1
    await conn.close()
    return missed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
