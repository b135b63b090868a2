"""Keys: what is typed at a terminal, key by key, while a command shows something live."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END = ""
"""Told when nobody can type any more."""


@contextmanager
def typed(hear: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hear every key for as long as the block lasts; nothing where nobody can type.

    Gives a function that asks the terminal for single keys again, for a shell takes it back while the command rests.
    """
    if not sys.stdin.isatty():
        yield lambda: None
        return
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read() -> None:
        try:
            said = os.read(file, 100).decode(errors="replace")
        except OSError:
            said = END  # the terminal is gone
        if said == END:
            loop.remove_reader(file)
        for key in said or [END]:
            hear(key)

    def listen() -> None:
        tty.setcbreak(file)

    listen()
    loop.add_reader(file, read)
    try:
        yield listen
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
