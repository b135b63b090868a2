"""Running one program: no shell, output line by line, and its process group is killed at the end."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from howdah.child_process import signal_name
from howdah.errors import HowdahError

Hear = Callable[[Literal["stdout", "stderr"], str], None]
GUARD = str(Path(__file__).with_name("guard.py"))
CHUNK = 64 * 1024
LONGEST_LINE = 10_000
AFTER_THE_END = 1.0
"""Seconds to wait for the last output: a process that left the group may keep the pipe open for ever."""


class CannotRun(HowdahError):
    """The program, or the folder to run it in, does not exist."""


class ProgramResult(msgspec.Struct, kw_only=True):
    """Result of a program."""

    exit_code: int
    """Negative: the signal that killed it."""
    stdout: str
    """End of the output."""
    stderr: str
    seconds: float

    @property
    def words(self) -> str:
        """Exit code or signal in words.

        >>> ProgramResult(exit_code=-9, stdout="", stderr="", seconds=1.0).words
        'killed by SIGKILL'
        """
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        return f"killed by {signal_name(-self.exit_code)}"


async def run(
    command: Sequence[str],
    *,
    folder: str | Path,
    environment: Mapping[str, str],
    stdin: bytes | None = None,
    hear: Hear | None = None,
    grace: float = 3.0,
    keep: int = 64 * 1024,
    fresh: bool = False,
) -> ProgramResult:
    """Run a program to its end. A cancellation stops it first: TERM to the group, KILL after the grace.

    ``keep``: number of characters of the end of each stream to return. ``fresh``: the folder is for this program
    alone; if this process dies, the guard removes it.
    """
    started = time.monotonic()
    program = _find(command, folder, environment.get("PATH", os.defpath))
    line = [str(folder) if fresh else "-", program, *command[1:]]
    async with _started(line, folder, environment, stdin is not None, grace) as (process, gone):
        ears = [_Ear(process.stdout, "stdout", hear, keep), _Ear(process.stderr, "stderr", hear, keep)]
        reading = [asyncio.create_task(ear.listen()) for ear in ears]
        feeding = asyncio.create_task(_feed(process, stdin or b""))
        try:
            await asyncio.shield(gone)
        except asyncio.CancelledError:
            _signal(process, signal.SIGTERM)
            await _outlive(gone, grace)
            raise
        finally:
            _signal(process, signal.SIGKILL)  # kill the processes it left running
            feeding.cancel()
            await asyncio.wait(reading, timeout=AFTER_THE_END)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, feeding, return_exceptions=True)
            for ear in ears:
                ear.finish()
    assert process.returncode is not None
    return ProgramResult(
        exit_code=process.returncode, stdout=ears[0].tail, stderr=ears[1].tail, seconds=time.monotonic() - started
    )


def _find(command: Sequence[str], folder: str | Path, path: str) -> str:
    """Return the path of the program, as a shell would find it in this folder."""
    if not os.path.isdir(folder):
        raise CannotRun(f"there is no folder {str(folder)!r} to run a program in")
    name = command[0] if command else ""
    found = shutil.which(str(Path(folder, name)) if os.sep in name else name, path=path) if name else None
    if found is None:
        raise CannotRun(f"there is no program {name!r}; is it installed, and in PATH?")
    return found


@asynccontextmanager
async def _started(
    line: Sequence[str], folder: str | Path, environment: Mapping[str, str], fed: bool, grace: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.Task[bytes]]]:
    """Start the program under its guard, in a session of its own; returns it and a task that ends when the guard does.

    ``line``: the folder the guard is to remove, or ``-``, and the command.
    Each side sees the socket between them close when the other has died. ``process.wait()`` is not used: it may wait
    for the pipes too, and a child of the program can hold them open.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                GUARD,
                str(theirs.fileno()),
                str(grace),
                "given" if "LC_CTYPE" in environment else "-",
                *line,
                cwd=folder,
                env=dict(environment),
                stdin=asyncio.subprocess.PIPE if fed else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        except BaseException:
            ours.close()
            raise
    reader, writer = await asyncio.open_connection(sock=ours)
    gone = asyncio.create_task(reader.read())
    try:
        yield process, gone
    finally:
        _signal(process, signal.SIGKILL)
        await _reaped(process)
        gone.cancel()
        writer.close()
        process._transport.close()  # type: ignore[attr-defined]  # what left the group may hold the pipes


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Signal the whole group; the id of a dead leader is not reused while its group has members."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


async def _outlive(gone: asyncio.Task[bytes], grace: float) -> None:
    """Wait for the end, at most the grace, even if cancelled again meanwhile."""
    until = time.monotonic() + grace
    while not gone.done() and (left := until - time.monotonic()) > 0:
        try:
            await asyncio.wait([gone], timeout=left)
        except asyncio.CancelledError:
            pass


async def _reaped(process: asyncio.subprocess.Process) -> None:
    """Wait until the end of the killed program is noticed."""
    while process.returncode is None:  # not wait(), which may wait for the pipes too
        try:
            await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            pass


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    try:
        process.stdin.write(data)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the program closed its input before it read all of it


class _Ear:
    """Reads one stream: forwards its lines, and keeps the end of it."""

    def __init__(
        self,
        reader: asyncio.StreamReader | None,
        stream: Literal["stdout", "stderr"],
        hear: Hear | None,
        keep: int,
    ) -> None:
        self._reader = reader
        self._stream = stream
        self._hear = hear
        self._keep = keep
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self.tail = ""

    async def listen(self) -> None:
        assert self._reader is not None
        while data := await self._reader.read(CHUNK):
            self._take(self._decoder.decode(data))

    def finish(self) -> None:
        """Forward the rest at the end of the stream as a line."""
        self._take(self._decoder.decode(b"", final=True))
        if self._line:
            self._say(self._line)
            self._line = ""

    def _take(self, text: str) -> None:
        self.tail = (self.tail + text)[-self._keep :]
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._say(line)
        while len(self._line) > LONGEST_LINE:
            self._say(self._line[:LONGEST_LINE])
            self._line = self._line[LONGEST_LINE:]

    def _say(self, line: str) -> None:
        if self._hear:
            for start in range(0, max(1, len(line)), LONGEST_LINE):
                self._hear(self._stream, line[start : start + LONGEST_LINE].rstrip("\r"))
