"""Create a repository with its hook: `python githost.py create REPO`."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

import asyncpg

from app import SCHEMA, app

HOOK = Path(__file__).with_name("hook.py").resolve()


def create(path: Path) -> int:
    """Create a bare repository, install the hook, and register it in the database; return its id."""
    path = path.resolve()
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", path], check=True)
    # set explicitly, because core.hooksPath in the user's configuration would disable the hook
    subprocess.run(["git", "--git-dir", path, "config", "core.hooksPath", path / "hooks"], check=True)
    hook = path / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(HOOK))}\n")
    hook.chmod(0o755)
    return asyncio.run(note(str(path)))


async def note(path: str) -> int:
    """Register a repository in the database, unless it is registered; return its id."""
    conn = await asyncpg.connect(app.database.dsn)
    await conn.execute(SCHEMA.read_text())
    number: int = await conn.fetchval(
        "insert into repo (path) values ($1) on conflict (path) do update set path = excluded.path returning id", path
    )
    await conn.close()
    return number


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "create":
        sys.exit("usage: githost.py create REPO")
    print(f"repository {create(Path(sys.argv[2]))}: {Path(sys.argv[2]).resolve()}")
