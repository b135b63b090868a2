"""The supervisor: a parent process that keeps several nodes running, each in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from howdah.exit_codes import ended
from howdah.loops import on_signals, wait, wait_any
from howdah.supervised import LISTENS, PARENT, READY, TELL

INSTALLED = ("__pycache__", "node_modules", "site-packages")


class SourceFiles:
    """Detects changes of the Python files under a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = self._look()

    def changed(self) -> str | None:
        """Return a file that was changed, added or removed since the last call."""
        seen, self._seen = self._seen, self._look()
        return min((path for path, _ in seen.items() ^ self._seen.items()), default=None)

    def _look(self) -> dict[str, int]:
        found = {}
        for folder, folders, files in os.walk(self.folder):
            # installed packages do not change during development, and there are too many to check
            if "pyvenv.cfg" in files:
                folders.clear()
                continue
            folders[:] = [name for name in folders if not name.startswith(".") and name not in INSTALLED]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with suppress(OSError):
                        found[path] = os.stat(path).st_mtime_ns
        return found


log = logging.getLogger("howdah")

YOUNG = 5.0
"""Seconds; a child that exits before this age and was never ready counts as unable to start."""
MOST_YOUNG_DEATHS = 5
REFUSED = (2, 3, 4)
"""Exit codes of a child that cannot start: usage, database, schema."""
NO_DATABASE = (3, 4)
"""Exit codes that a change of the code cannot fix."""
QUESTIONS = (signal.SIGUSR1, signal.SIGTTIN)
LOOK_EVERY = 0.5


class Supervisor:
    """Keeps one child process per command running until it is stopped or the children have drained."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        drain: bool = False,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        sources: SourceFiles | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        self._commands = commands
        self._drain = drain
        self._environment = {**(environment or os.environ), PARENT: str(os.getpid())}
        self._folder = folder
        self._sources = sources
        self._output = output
        self._children: dict[int, _Child] = {}
        self._reason = 0
        """Exit code of the child that made the supervisor stop; the other children may exit with another one."""
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def pids(self) -> list[int]:
        """The process ids of the running children."""
        return [child.process.pid for child in self._children.values()]

    async def run(self) -> int:
        """Run until every child has exited and is not restarted; returns the exit code."""
        watching = asyncio.create_task(self._watch(), name="howdah watch") if self._sources else None
        try:
            codes = await asyncio.gather(*(self._keep(place) for place in range(len(self._commands))))
        finally:
            if watching:
                watching.cancel()
            self._send(signal.SIGKILL)  # children are left only after an error above: leave no orphans
        return self._reason or next((code for code in codes if code), 0)

    def take_signals(self) -> Callable[[], None]:
        """Forward the signals of this process to every child; returns the function that undoes it."""
        loop = asyncio.get_running_loop()
        undo = on_signals(self.stop, self.stop)
        for number in QUESTIONS:
            loop.add_signal_handler(number, self._ask, number)

        def undo_all() -> None:
            undo()
            for number in QUESTIONS:
                loop.remove_signal_handler(number)

        return undo_all

    def stop(self) -> None:
        """Let every child drain; the second call makes them release their jobs at once."""
        self._stop.set()
        self._send(signal.SIGTERM)

    async def _keep(self, place: int) -> int:
        """Keep one child running, restarting it as needed; returns the exit code of the last one."""
        never, young_deaths, failures, ever = 0, 0, 0, False
        while not self._stop.is_set():
            try:
                child = await self._start(place)
            except OSError as error:  # out of processes, memory or descriptors: the other children keep running
                failures += 1
                log.error("worker %d cannot be started: %s", place, error)
                if not ever and failures >= MOST_YOUNG_DEATHS:
                    return self._end(1)
                await wait(self._stop, min(10.0, 0.1 * 2 ** min(failures, 10)))
                continue
            failures = 0
            code = await child.process.wait()
            child.close()
            del self._children[place]
            if self._stop.is_set():
                return _after_stop(child, code)
            if code == 0 and self._drain:
                return 0
            if child.renewing:
                continue
            young = child.age < YOUNG
            if self._sources and not child.ready and (young or code not in NO_DATABASE):
                log.error("worker %d %s; waiting for a change in %s", place, ended(code), self._sources.folder)
                await wait_any(None, self._changed, self._stop)
                continue
            # a child that was ready exited because of its work, so the others need not stop
            if code in REFUSED and not ever and not child.ready:
                return self._end(code)
            never = never + 1 if young and not child.ready else 0
            if never >= MOST_YOUNG_DEATHS:
                log.error("worker %d %s; it failed to start %d times in a row, stopping all", place, ended(code), never)
                return self._end(1)
            young_deaths = young_deaths + 1 if young else 0
            ever = True
            pause = min(10.0, 0.1 * 2 ** min(young_deaths, 10)) * random.uniform(0.5, 1.5)  # noqa: S311
            log.warning("worker %d (process %d) %s; starting another", place, child.process.pid, ended(code))
            await wait(self._stop, pause)
        return 0

    async def _start(self, place: int) -> _Child:
        heard, told = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._commands[place],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**self._environment, TELL: str(told)},
                cwd=self._folder,
                pass_fds=(told,),
                start_new_session=True,  # a Ctrl-C in the terminal reaches children once, through the supervisor
            )
        except BaseException:
            os.close(heard)
            raise
        finally:
            os.close(told)
        child = self._children[place] = _Child(process, heard)
        if self._stop.is_set():
            child.send(signal.SIGTERM)
        return child

    def _end(self, code: int) -> int:
        if not self._stop.is_set():
            self._reason = code
            self.stop()
        return code

    def _send(self, number: signal.Signals) -> None:
        for child in self._children.values():
            child.send(number)

    def _ask(self, number: signal.Signals) -> None:
        for child in self._children.values():
            if child.listens:  # before its signal handler is set, the signal would kill it
                child.send(number)

    async def _watch(self) -> None:
        assert self._sources is not None
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if path := self._sources.changed():
                log.info("%s changed; restarting", path)
                self._changed.set()
                self._changed.clear()
                for child in self._children.values():
                    child.renewing = True
                    child.send(signal.SIGTERM)


class _Child:
    def __init__(self, process: asyncio.subprocess.Process, heard: int) -> None:
        self.process = process
        self.renewing = False
        self._born = time.monotonic()
        self._heard = heard
        self._said = b""
        os.set_blocking(heard, False)

    @property
    def listens(self) -> bool:
        """True if it has installed its signal handlers."""
        return LISTENS in self._hear()

    @property
    def ready(self) -> bool:
        """True if it was ever ready to claim work."""
        return READY in self._hear()

    def close(self) -> None:
        """Read the last reports of a child that has exited, and close its pipe."""
        self._hear()
        os.close(self._heard)
        self._heard = -1

    def _hear(self) -> bytes:
        if self._heard >= 0:
            with suppress(BlockingIOError):
                self._said += os.read(self._heard, 4096)
        return self._said

    @property
    def age(self) -> float:
        return time.monotonic() - self._born

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


def _after_stop(child: _Child, code: int) -> int:
    # stopped before it had its signal handlers: it held no jobs
    unheard = not child.listens and code == -signal.SIGTERM
    return 0 if code == 0 or unheard else 1
