"""Programs and folders that are removed when this process ends, even by a kill; ``child_reaper`` removes them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from howdah.errors import ConfigError
from howdah.postgres.embedded.binaries import Account, account
from howdah.postgres.embedded.data_directory import temporary
from howdah_lab.torture.servers.child_reaper import below, end_all, send

REAPER = Path(__file__).with_name("child_reaper.py")
PROGRAMS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
LONGEST = 60.0  # seconds a killed process is waited for

_open: set[IO[bytes]] = set()


class Folder:
    """A new folder that the user who runs servers can reach; it goes with us, and with it what is mounted in it."""

    def __init__(self) -> None:
        self.owner = account(None)
        self.path = temporary(self.owner)
        self.disk = self.path / "disk"
        """Where something may be mounted."""
        self._reaper = _Reaper({"command": None, "mounts": [str(self.disk)], "folder": str(self.path)})

    def make(self, name: str) -> Path:
        """Make a folder in it that only the user who runs servers can access."""
        made = self.path / name
        made.mkdir(mode=0o700)
        self.give(made)
        return made

    def write(self, name: str, text: str) -> Path:
        """Make a file in it that only the user who runs servers can read."""
        path = self.path / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        """Make who runs servers the owner."""
        if self.owner:
            os.chown(path, self.owner.uid, self.owner.gid)

    def remove(self) -> None:
        """It goes now."""
        self._reaper.end()


class Program:
    """A program with everything it starts: killed, frozen and thawed as one."""

    def __init__(self, name: str, command: Sequence[str], folder: Folder) -> None:
        self._command = [find(command[0]), *command[1:]]
        self._folder = folder
        self._name = name
        self._reaper: _Reaper | None = None

    @property
    def log(self) -> Path:
        """Output of the program."""
        return self._folder.path / f"{self._name}.log"

    @property
    def pids(self) -> list[int]:
        """Of all that is left of it."""
        return list(self._states)

    @property
    def is_alive(self) -> bool:
        """True if anything of it is left."""
        return self._reaper is not None and self._reaper.is_alive

    def start(self) -> None:
        """Start it; it need not answer yet."""
        assert not self.is_alive, f"{self._name} runs already"
        plan = {
            "command": self._command,
            "cwd": str(self._folder.path),
            "environment": {"PATH": PROGRAMS, "LC_ALL": "C.UTF-8"},
            "account": _identity(self._folder.owner),
            "mounts": [],
            "folder": None,
        }
        self._reaper = _Reaper(plan, self.log)

    def kill(self) -> None:
        """End all of it at once, as when a machine loses its power; returns when nothing is left."""
        if self._reaper:
            self._reaper.end()
            self._reaper = None

    def freeze(self) -> None:
        """Stop all of it where it is, also what is being started meanwhile; returns when nothing moves."""
        while moving := [pid for pid, state in self._states.items() if state not in "Tt"]:
            send(moving, signal.SIGSTOP)
            time.sleep(0.001)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        send(self.pids, signal.SIGCONT)

    @property
    def _states(self) -> dict[int, str]:
        return below(self._reaper.pid) if self._reaper else {}

    def say(self, lines: int = 5) -> str:
        """The last lines it said, for messages."""
        try:
            output = self.log.read_text(errors="replace")
        except OSError:
            return "nothing"
        return " | ".join(line.strip() for line in output.splitlines()[-lines:]) or "nothing"


def find(name: str) -> str:
    """The path of a program, or say that it is missing."""
    found = look_for(name)
    if found is None:
        raise ConfigError(f"{name} is not installed; install it, or choose another server to torture")
    return found


def look_for(name: str) -> str | None:
    """The path of a program, if it is installed."""
    return name if os.path.isabs(name) else shutil.which(name, path=PROGRAMS)


async def in_thread(act: Callable[[], None]) -> None:
    """Run what blocks in a thread, and to its end even if the caller is cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class _Reaper:
    """This end of a process that keeps something."""

    def __init__(self, plan: dict[str, Any], log: Path | None = None) -> None:
        target = (
            os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else os.open(os.devnull, os.O_WRONLY)
        )
        with os.fdopen(target, "wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own file
                [sys.executable, "-I", "-S", REAPER, json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us, who still have to ask questions
                cwd="/",
            )
        assert self._process.stdin
        assert self._process.stdout
        self.pid = self._process.pid
        self._line: IO[bytes] = self._process.stdin
        _open.add(self._line)
        with self._process.stdout as pipe:
            begun = pipe.readline()
        if not begun:
            self.end()
            raise ConfigError(f"cannot start {plan['command']}; see {log}")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        if self._line.closed:
            return
        end_all(self.pid)
        _open.discard(self._line)
        self._line.close()
        self._process.wait(LONGEST)


def _identity(owner: Account | None) -> dict[str, Any]:
    return {"user": owner.uid, "group": owner.gid, "extra_groups": []} if owner else {}


def _forget_in_child() -> None:
    # A fork shares our ends of the lines: left open, they would keep everything alive after us.
    for line in _open:
        line.close()
    _open.clear()


os.register_at_fork(after_in_child=_forget_in_child)
