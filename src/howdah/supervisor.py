"""Supervisor: one parent, several nodes, each a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from howdah.exits import ended
from howdah.orphan import LISTENS, PARENT, READY, TELL
from howdah.service import on_signals, wait, wait_any
from howdah.sources import Sources

log = logging.getLogger("howdah")

YOUNG = 5.0
"""Seconds; a child that was never ready and dies before this age could not start, rather than had an accident."""
MOST_YOUNG_DEATHS = 5
REFUSED = (2, 3, 4)
"""Exit codes of a child that says why it cannot start: usage, database, schema."""
NO_DATABASE = (3, 4)
"""Those of them that no change of the code would mend."""
QUESTIONS = (signal.SIGUSR1, signal.SIGTTIN)
LOOK_EVERY = 0.5


class Supervisor:
    """Keeps one child per command alive until it is told to stop, or until they have drained."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        drain: bool = False,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        sources: Sources | None = None,
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
        """The exit code of the child that made all end; those that were stopped for it may end with another one."""
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def pids(self) -> list[int]:
        """The process ids of the children that run now."""
        return [child.process.pid for child in self._children.values()]

    async def run(self) -> int:
        """Run until every child has ended for good; returns the exit code."""
        watching = asyncio.create_task(self._watch(), name="howdah watch") if self._sources else None
        try:
            codes = await asyncio.gather(*(self._keep(place) for place in range(len(self._commands))))
        finally:
            if watching:
                watching.cancel()
            self._send(signal.SIGKILL)  # only if something went wrong above: nobody is left behind
        return self._reason or next((code for code in codes if code), 0)

    def take_signals(self) -> Callable[[], None]:
        """Pass on to every child what this process is sent; returns the function that undoes it."""
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
        """Let every child drain; the second call makes them hand back at once."""
        self._stop.set()
        self._send(signal.SIGTERM)

    async def _keep(self, place: int) -> int:
        """Keep one place filled; returns the exit code of its last child."""
        never, young_deaths, failures, ever = 0, 0, 0, False
        while not self._stop.is_set():
            try:
                child = await self._start(place)
            except OSError as error:  # no process, memory or descriptor left: the other children work on
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
            # a child that was ready was ended by its work: that says nothing about the others
            if code in REFUSED and not ever and not child.ready:
                return self._end(code)
            never = never + 1 if young and not child.ready else 0
            if never >= MOST_YOUNG_DEATHS:
                log.error("worker %d %s; %d times in a row it did not live, so all end", place, ended(code), never)
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
                start_new_session=True,  # a Ctrl-C in the terminal reaches children once, through us
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
            if child.listens:  # before it can answer, the signal would end it
                child.send(number)

    async def _watch(self) -> None:
        assert self._sources is not None
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if path := self._sources.changed():
                log.info("%s changed; starting anew", path)
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
        """Whether it heeds signals."""
        return LISTENS in self._hear()

    @property
    def ready(self) -> bool:
        """Whether it was ever ready to work."""
        return READY in self._hear()

    def close(self) -> None:
        """It has ended: there is no more to hear."""
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
    # told to stop before it could listen: it held nothing
    unheard = not child.listens and code == -signal.SIGTERM
    return 0 if code == 0 or unheard else 1
