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

from howdah.child_process import LISTENS, PARENT, READY, REPORT_PIPE, exit_description
from howdah.loops import on_signals, wait, wait_any

SKIPPED_FOLDERS = ("__pycache__", "node_modules", "site-packages")


class SourceFiles:
    """Detects changes of the Python files under a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = self._read()

    def changed(self) -> str | None:
        """Return a file that was changed, added or removed since the last call."""
        seen, self._seen = self._seen, self._read()
        return min((path for path, _ in seen.items() ^ self._seen.items()), default=None)

    def _read(self) -> dict[str, int]:
        found = {}
        for folder, folders, files in os.walk(self.folder):
            # installed packages do not change during development, and there are too many to check
            if "pyvenv.cfg" in files:
                folders.clear()
                continue
            folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with suppress(OSError):
                        found[path] = os.stat(path).st_mtime_ns
        return found


log = logging.getLogger("howdah")

START_TIME = 5.0
"""Seconds; a child that exits before this age and was never ready counts as unable to start."""
MAX_FAILED_STARTS = 5
CANNOT_START = (2, 3, 4)
"""Exit codes of a child that cannot start: usage, database, schema."""
NO_DATABASE = (3, 4)
"""Exit codes that a change of the code cannot fix."""
DUMP_SIGNALS = (signal.SIGUSR1, signal.SIGTTIN)
"""Signals at which a child writes its stacks to stderr."""
CHECK_INTERVAL = 0.5
"""Seconds between two searches for changed files."""


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
        descriptors: Sequence[int] = (),
    ) -> None:
        self._commands = commands
        self._drain = drain
        self._environment = {**(environment or os.environ), PARENT: str(os.getpid())}
        self._folder = folder
        self._sources = sources
        self._output = output
        self._descriptors = descriptors
        """File descriptors that every child inherits."""
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
            codes = await asyncio.gather(*(self._keep(number) for number in range(len(self._commands))))
        finally:
            if watching:
                watching.cancel()
            self._send(signal.SIGKILL)  # children are left only after an error above: leave no orphans
        return self._reason or next((code for code in codes if code), 0)

    def take_signals(self) -> Callable[[], None]:
        """Forward the signals of this process to every child; returns the function that undoes it."""
        loop = asyncio.get_running_loop()
        undo = on_signals(self.stop, self.stop)
        for number in DUMP_SIGNALS:
            loop.add_signal_handler(number, self._forward_dump, number)

        def undo_all() -> None:
            undo()
            for number in DUMP_SIGNALS:
                loop.remove_signal_handler(number)

        return undo_all

    def stop(self) -> None:
        """Let every child drain; the second call makes them release their jobs at once."""
        self._stop.set()
        self._send(signal.SIGTERM)

    async def _keep(self, number: int) -> int:
        """Keep one child running, restarting it as needed; returns the exit code of the last one."""
        failed_starts, early_exits, spawn_errors, exited_before = 0, 0, 0, False
        while not self._stop.is_set():
            try:
                child = await self._start(number)
            except OSError as error:  # out of processes, memory or descriptors: the other children keep running
                spawn_errors += 1
                log.error("worker %d cannot be started: %s", number, error)
                if not exited_before and spawn_errors >= MAX_FAILED_STARTS:
                    return self._end(1)
                await wait(self._stop, min(10.0, 0.1 * 2 ** min(spawn_errors, 10)))
                continue
            spawn_errors = 0
            code = await child.process.wait()
            child.close()
            del self._children[number]
            if self._stop.is_set():
                return _after_stop(child, code)
            if code == 0 and self._drain:
                return 0
            if child.restarting:
                continue
            how, young = exit_description(code), child.age < START_TIME
            if self._sources and not child.ready and (young or code not in NO_DATABASE):
                log.error("worker %d %s; waiting for a change in %s", number, how, self._sources.folder)
                await wait_any(None, self._changed, self._stop)
                continue
            # a child that was ready exited because of its work, so the others need not stop
            if code in CANNOT_START and not exited_before and not child.ready:
                return self._end(code)
            failed_starts = failed_starts + 1 if young and not child.ready else 0
            if failed_starts >= MAX_FAILED_STARTS:
                log.error(
                    "worker %d %s; it failed to start %d times in a row, stopping all", number, how, failed_starts
                )
                return self._end(1)
            early_exits = early_exits + 1 if young else 0
            exited_before = True
            pause = min(10.0, 0.1 * 2 ** min(early_exits, 10)) * random.uniform(0.5, 1.5)  # noqa: S311
            log.warning("worker %d (process %d) %s; starting another", number, child.process.pid, how)
            await wait(self._stop, pause)
        return 0

    async def _start(self, number: int) -> _Child:
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._commands[number],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**self._environment, REPORT_PIPE: str(write_end)},
                cwd=self._folder,
                pass_fds=(write_end, *self._descriptors),
                start_new_session=True,  # a Ctrl-C in the terminal reaches children once, through the supervisor
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        child = self._children[number] = _Child(process, read_end)
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

    def _forward_dump(self, number: signal.Signals) -> None:
        for child in self._children.values():
            if child.listens:  # before its signal handler is set, the signal would kill it
                child.send(number)

    async def _watch(self) -> None:
        assert self._sources is not None
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if path := self._sources.changed():
                log.info("%s changed; restarting", path)
                self._changed.set()
                self._changed.clear()
                for child in self._children.values():
                    child.restarting = True
                    child.send(signal.SIGTERM)


class _Child:
    def __init__(self, process: asyncio.subprocess.Process, pipe: int) -> None:
        self.process = process
        self.restarting = False
        self._started_at = time.monotonic()
        self._pipe = pipe
        self._reports = b""
        os.set_blocking(pipe, False)

    @property
    def listens(self) -> bool:
        """True if it has installed its signal handlers."""
        return LISTENS in self._read_reports()

    @property
    def ready(self) -> bool:
        """True if it was ever ready to claim work."""
        return READY in self._read_reports()

    def close(self) -> None:
        """Read the last reports of a child that has exited, and close its pipe."""
        self._read_reports()
        os.close(self._pipe)
        self._pipe = -1

    def _read_reports(self) -> bytes:
        if self._pipe >= 0:
            with suppress(BlockingIOError):
                self._reports += os.read(self._pipe, 4096)
        return self._reports

    @property
    def age(self) -> float:
        return time.monotonic() - self._started_at

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


def _after_stop(child: _Child, code: int) -> int:
    # stopped before it had its signal handlers: it held no jobs
    before_handlers = not child.listens and code == -signal.SIGTERM
    return 0 if code == 0 or before_handlers else 1
