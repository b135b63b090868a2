"""Run the whole example: PostgreSQL, a control plane, a worker without a database, a sidecar, a repository."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx

from howdah import Howdah
from howdah.postgres.embedded import server as embedded

HERE = Path(__file__).parent
SCOPES = ("work", "enqueue", "read")
PERSON = {"NAME": "user17", "EMAIL": "user17@example.com"}


class Farm:
    """Starts the processes and stops them together."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def howdah(self, *words: str) -> str:
        """Run a howdah command to its end; return its output."""
        print("$ howdah", shlex.join(words).replace(str(self._folder), "…"), flush=True)
        ran = subprocess.run(
            [sys.executable, "-m", "howdah", *words],
            cwd=HERE,
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return ran.stdout

    def start(self, name: str, *words: str, ready: str, **more: str) -> str:
        """Start a process and wait until its log matches ``ready``; return the first group of the match."""
        print("$ howdah", shlex.join(words).replace(str(self._folder), "…"), "&", flush=True)
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            self._processes[name] = process = subprocess.Popen(
                [sys.executable, "-m", "howdah", *words],
                cwd=HERE,
                env=self._environment | more,
                stdout=output,
                stderr=output,
            )
        until = time.monotonic() + 30
        while not (found := re.search(ready, log.read_text())):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the {name} did not start:\n{log.read_text()}")
            time.sleep(0.05)
        return found[1]

    def end(self) -> None:
        """Stop all processes, the worker first: it needs the others to finish its jobs."""
        for name in ("worker", "sidecar", "control plane"):
            if process := self._processes.get(name):
                process.send_signal(signal.SIGTERM)
                print(f"the {name} ended with code {process.wait(30)}", flush=True)


def git(folder: Path, *words: str) -> str:
    """Run git without the user's own settings."""
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in PERSON.items()}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean = plain | who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=folder, env=clean, check=True, stdout=subprocess.PIPE, text=True).stdout


def repository(folder: Path) -> Path:
    """Create a bare repository with one commit."""
    bare, clone = folder / "repositories" / "site.git", folder / "clone"
    bare.mkdir(parents=True)
    git(bare, "init", "--quiet", "--bare", "--initial-branch=main", ".")
    git(folder, "init", "--quiet", "--initial-branch=main", str(clone))
    (clone / "README").write_text("a site\n")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "the first commit")
    git(clone, "push", "--quiet", str(bare), "main")
    return bare


async def run_job(client: httpx.AsyncClient, kind: str, **spec: Any) -> None:
    """Enqueue a job over HTTP, wait until it has finished, and print its log and runs."""
    made = (await client.post("/jobs", json={"kind": kind, "queue": "builds", "args": spec})).raise_for_status().json()
    until = time.monotonic() + 60
    while (job := (await client.get(f"/jobs/{made['id']}")).json())["state"] in ("queued", "running"):
        if time.monotonic() > until:
            raise SystemExit(f"job {made['id']} does not end: {job}")
        await asyncio.sleep(0.1)
    why = f": {job['error']}" if job.get("error") else ""
    print(f"\njob {job['id']} ({kind}) is {job['state']}{why}", flush=True)
    for line in (await client.get(f"/jobs/{job['id']}/log")).json()["lines"]:
        print(f"  {line['stream']}  {line['line']}")
    for run in (await client.get(f"/jobs/{job['id']}/runs")).json()["runs"]:
        state = " ".join(filter(None, (run["state"], run.get("code"))))
        print(f"  run {run['attempt']}  {state}  changed {run['result']['files_changed']}")
        for file in run["result"]["artifacts"]:
            print(f"  {file['name']}  {file['size']} bytes  sha256 {file['sha256'][:12]}…")


async def work(url: str, token: str, bare: Path) -> None:
    """Enqueue the jobs as a client that has only the address of the control plane and a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
        push = {"git_clone_url": str(bare), "auto_commit": True, "auto_push": True}
        page = {"template": "page", "variables": {"colour": "grey"}, "artifacts": ["*.html"]}
        await run_job(client, "build", prompt="elephants", **page, **push)
        await run_job(client, "sdlc", command="feature", args=["init", "search"], git_clone_url=str(bare))
        await run_job(client, "build", prompt="delete everything", **push)
        await run_job(client, "build", prompt="write a page about secrets", git_clone_url="/etc")
        await run_job(client, "count", file=str(HERE / "agent.py"))


def main(folder: Path, dsn: str) -> None:
    """Start all processes, run some builds, print the repository, stop all processes."""
    bare = repository(folder)
    environment = os.environ | {"HOWDAH_DSN": dsn, "HOWDAH_SIDECAR_TOKEN": secrets.token_hex(32)}
    asyncio.run(Howdah(dsn).migrate())
    farm = Farm(folder, environment)
    try:
        output = farm.howdah("token", "create", "farm", *(f"--scope={each}" for each in SCOPES))
        token = re.findall(r"hwd_\w+", output)[0]
        (folder / "token").write_text(token)
        port = farm.start("control plane", "serve", "-a", "app:app", "--port", "0", ready=r"listens on \S+:(\d+)")
        url = f"http://127.0.0.1:{port}"
        sidecar_port = farm.start(
            "sidecar", "sidecar", "--port", "0", "--folder", str(folder / "workspaces"),
            "--agent", shlex.join([sys.executable, str(HERE / "agent.py")]),
            "--command", "feature=" + shlex.join([sys.executable, str(HERE / "feature.py")]),
            "--allow", str(bare.parent), ready=r"listens on \S+:(\d+)",
        )  # fmt: skip
        worker = ["worker", "-a", "app:app", "--server", url, "--token-file", str(folder / "token"), "-c", "1"]
        # without a DSN: the worker uses the control plane only
        no_database = {"HOWDAH_DSN": "", "SIDECAR_URL": f"http://127.0.0.1:{sidecar_port}"}
        farm.start("worker", *worker, ready=r"(works for)", **no_database)
        asyncio.run(work(url, token, bare))
    finally:
        farm.end()
    print("\nthe repository")
    print(git(bare, "log", "--reverse", "--format=  %h  %an  %s", "main"), end="")
    print(f"workspaces left: {len(list((folder / 'workspaces').glob('attempt-*')))}")


if __name__ == "__main__":
    with embedded.start() as server, tempfile.TemporaryDirectory() as made:
        main(Path(made), server.dsn)
