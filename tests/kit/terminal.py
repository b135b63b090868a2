"""Commands at a terminal of their own: what they draw, keys that are typed, and a size that changes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

from kit.command import TESTS, eventually

ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_])")
HOME = "\x1b[H"
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""How the other screen is asked for, and left."""


class Terminal:
    """``howdah …`` at a terminal; when the block ends nothing of it is left."""

    def __init__(
        self, *words: str, dsn: str, size: tuple[int, int] = (110, 40), folder: Path | None = None, **environment: str
    ) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            own.pop(name, None)
        self._ours, theirs = os.openpty()
        self.resize(*size, tell=False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "howdah", *words],
            env={**own, "PYTHONPATH": str(TESTS), "TERM": "xterm-256color", "HOWDAH_DSN": dsn, **environment},
            cwd=folder or TESTS,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        )
        self._theirs = theirs
        self._heard = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """All it has written, with what steers the terminal."""
        return bytes(self._heard).decode(errors="replace")

    @property
    def screen(self) -> list[str]:
        """The last whole frame, line by line, without colours."""
        frames = self.output.split(HOME)
        whole = frames[-1] if LEAVE in frames[-1] or len(frames) < 3 else frames[-2]
        return [line.rstrip() for line in ESCAPE.sub("", whole).splitlines()]

    @property
    def frames(self) -> int:
        return self.output.count(HOME)

    @property
    def modes(self) -> list[int | list[bytes | int]]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._theirs)

    def shows(self, text: str, seconds: float = 30.0) -> list[str]:
        """Wait until the screen has ``text``; returns the screen."""
        eventually(
            lambda: any(text in line for line in self.screen) or self.process.poll() is not None,
            seconds,
            lambda: self.output[-4000:],
        )
        screen = self.screen
        assert any(text in line for line in screen), self.output[-4000:]
        return screen

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, width: int, height: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def ends(self, seconds: float = 30.0) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(seconds)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        self._reader.join(5)
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                some = os.read(self._ours, 65536)
            except OSError:
                return
            if not some:
                return
            self._heard += some
