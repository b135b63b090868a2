"""A sidecar as a real process, and a real repository for it to work with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx

TOKEN = "a-token-for-tests-only-0123456789"
GIT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "user17" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "user17@example.com" for role in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *words: str) -> str:
    """Run git; returns what it wrote."""
    ran = subprocess.run(["git", *words], cwd=folder, env=GIT, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


class Repository:
    """A bare repository with one commit, and a clone to look into it with."""

    def __init__(self, folder: Path, name: str = "shop.git") -> None:
        self.bare = folder / name
        self.clone = folder / f"{name}-clone"
        self.bare.mkdir(parents=True)
        git(self.bare, "init", "--quiet", "--bare", "--initial-branch=main", ".")
        git(folder, "clone", "--quiet", str(self.bare), str(self.clone))
        self.push("README", "a shop\n")

    def push(self, name: str, text: str) -> None:
        """Somebody else commits and pushes."""
        git(self.clone, "fetch", "--quiet")
        if self.log():
            git(self.clone, "reset", "--quiet", "--hard", "origin/main")
        (self.clone / name).write_text(text)
        git(self.clone, "add", "--all")
        git(self.clone, "commit", "--quiet", "--message", f"{name}")
        git(self.clone, "push", "--quiet", "origin", "HEAD:main")

    def log(self) -> list[str]:
        """The subjects of its commits, oldest first."""
        there = git(self.bare, "for-each-ref", "refs/heads/main")
        return git(self.bare, "log", "--reverse", "--format=%s", "main").splitlines() if there else []

    def show(self, name: str) -> str:
        return git(self.bare, "show", f"main:{name}")

    @property
    def head(self) -> str:
        return git(self.bare, "rev-parse", "main").strip()


@dataclass(slots=True)
class SidecarProcess:
    """A sidecar at work."""

    process: asyncio.subprocess.Process
    url: str
    folder: Path
    log: Path

    def client(self, token: str | None = TOKEN) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=60)

    def workspaces(self) -> list[Path]:
        return sorted(self.folder.glob("attempt-*"))

    async def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), 30)


@asynccontextmanager
async def running_sidecar(folder: Path, *flags: str, **environment: str) -> AsyncIterator[SidecarProcess]:
    """``howdah sidecar`` with these flags while the block lasts."""
    where, log = folder / "workspaces", folder / "sidecar.log"
    with log.open("a") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "howdah", "sidecar", "--port", "0", "--folder", str(where), *flags,
            env={**os.environ, "HOWDAH_SIDECAR_TOKEN": TOKEN, **environment}, stderr=output, stdout=output,
        )  # fmt: skip
    try:
        for _ in range(600):
            if found := re.search(r"listens on 127\.0\.0\.1:(\d+)", log.read_text().rpartition("stops")[2]):
                break
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.05)
        else:
            raise AssertionError(f"the sidecar does not start: {log.read_text()}")
        yield SidecarProcess(process, f"http://127.0.0.1:{found[1]}", where, log)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 0.5)
            except TimeoutError:
                with suppress(ProcessLookupError):  # it may end just now
                    process.terminate()  # it drains; two signals of one moment would be one
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()
