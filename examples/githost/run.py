"""Run the whole example on a private PostgreSQL: create, clone, commit, push, process, print the tables."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path

import asyncpg
from githost import create

from app import app
from howdah import WorkerOptions
from howdah.postgres.embedded import server as embedded

PERSON = {"NAME": "user17", "EMAIL": "user17@example.com"}


def environment(home: Path) -> dict[str, str]:
    """Return an environment for git without the user's own settings."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in PERSON.items()}
    return plain | who | {"HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def push(repo: Path, clone: Path) -> None:
    """Clone a repository, commit twice, and push two branches."""

    def git(*command: str) -> None:
        print("$ git", *command, flush=True)
        subprocess.run(["git", *command], cwd=clone, check=True)

    clone.mkdir()
    git("clone", "--quiet", str(repo), ".")
    for number in (17, 18):
        (clone / f"order-{number}").write_text(f"order {number}\n")
        git("add", "--all")
        git("commit", "--quiet", "--message", f"order {number}")
    git("push", "--quiet", "origin", "HEAD:refs/heads/main", "HEAD~1:refs/heads/first")


async def show() -> None:
    """Print the tables."""
    conn = await asyncpg.connect(app.database.dsn)
    print("\npush events")
    for row in await conn.fetch("select * from push_event order by id"):
        print(f"  {row['id']}  {row['ref']}  commits {row['commits']}  processed at {row['processed_at']:%H:%M:%S}")
    print("repositories")
    for row in await conn.fetch("select * from repo order by id"):
        print(f"  {row['id']}  {Path(row['path']).name}  {row['size_bytes']:,} bytes on disk")
    print("jobs")
    for row in await conn.fetch("select id, kind, args::text, state from howdah.jobs order by id"):
        print(f"  {row['id']}  {row['kind']}  {row['args']}  {row['state']}")
    await conn.close()


if __name__ == "__main__":
    with embedded.start() as server, tempfile.TemporaryDirectory() as folder:
        clean = environment(Path(folder)) | {"HOWDAH_DSN": server.dsn}
        os.environ.clear()
        os.environ.update(clean)
        asyncio.run(app.migrate())
        create(Path(folder, "shop.git"))
        push(Path(folder, "shop.git"), Path(folder, "shop"))
        asyncio.run(app.work(WorkerOptions(drain=True, slots=1)))
        asyncio.run(show())
