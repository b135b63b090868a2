"""A small git host: tasks that run after a push."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path
from typing import Any

from howdah import Howdah, Poison, Transaction

app = Howdah()
SCHEMA = Path(__file__).with_name("schema.sql")


async def record_push(conn: Any, path: str, ref: str, before: str, after: str) -> int:
    """Record a push and enqueue its processing, in one transaction."""
    async with conn.transaction():
        event: int | None = await conn.fetchval(
            "insert into push_event (repo_id, ref, before, after) select id, $2, $3, $4 from repo where path = $1"
            " returning id",
            path,
            ref,
            before,
            after,
        )
        if event is None:
            raise LookupError(f"{path} is not known here; run githost.py create {path}")
        await process_push.using(conn=conn).enqueue(event)
    return event


@app.task(name="push:process", transactional=True)
async def process_push(tx: Transaction, push_event_id: int) -> None:
    """Count the commits of a push and enqueue a measurement of its repository."""
    event = await tx.fetchrow(
        "select e.*, r.path from push_event e join repo r on r.id = e.repo_id where e.id = $1 for update of e",
        push_event_id,
    )
    if event is None:
        raise Poison(f"there is no push event {push_event_id}")
    if event["processed_at"] is not None:
        return
    commits = await count_commits(tx, event)
    # A running measurement holds a lock on this row (see below). Without it, the key of that measurement would
    # suppress our job, although it may have missed the objects of this push.
    await tx.execute("select from repo where id = $1 for no key update", event["repo_id"])
    await recalc_size.using(conn=tx, key=f"repo:size_recalc {event['repo_id']}").enqueue(event["repo_id"])
    await tx.execute("update push_event set commits = $2, processed_at = now() where id = $1", push_event_id, commits)


@app.task(name="repo:size_recalc", transactional=True)
async def recalc_size(tx: Transaction, repo_id: int) -> int:
    """Measure the size of a repository and store it."""
    path = await tx.fetchval("select path from repo where id = $1 for no key update", repo_id)
    if path is None:
        raise Poison(f"there is no repository {repo_id}")
    size = await asyncio.to_thread(size_on_disk, path)
    await tx.execute("update repo set size_bytes = $2, sized_at = now() where id = $1", repo_id, size)
    return size


async def count_commits(tx: Transaction, event: Any) -> int:
    """Count the commits that no ref contained before this push; earlier events give the refs of that time."""
    refs = await tx.fetch(
        "select distinct on (ref) after from push_event where repo_id = $1 and id < $2 order by ref, id desc",
        event["repo_id"],
        event["id"],
    )
    known = [f"^{commit}" for commit in (event["before"], *(ref["after"] for ref in refs)) if not is_nothing(commit)]
    if is_nothing(event["after"]):
        return 0
    return int(await git(event["path"], "rev-list", "--count", "--ignore-missing", event["after"], *known))


def is_nothing(commit: str) -> bool:
    """Return whether this is the null id, which git uses for "no commit"."""
    return not commit.strip("0")


def size_on_disk(path: str) -> int:
    """Return the size of a folder on disk; files may disappear meanwhile, because git removes some."""
    if not Path(path).is_dir():
        raise Poison(f"{path} is gone")
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(FileNotFoundError):
                total += Path(folder, name).lstat().st_blocks * 512
    return total


async def git(path: str, *command: str) -> str:
    """Run git on a bare repository and return its output."""
    process = await asyncio.create_subprocess_exec("git", "--git-dir", path, *command, stdout=PIPE, stderr=PIPE)
    output, error = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"git {command[0]} failed in {path}: {error.decode(errors='replace').strip()}")
    return output.decode()
