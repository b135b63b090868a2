"""Signals that were ignored when the tests were started, as by nohup or in the background of a script."""

from __future__ import annotations

import signal

STOPS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def pass_on_none_ignored() -> None:
    """Disregard ignored signals by a handler instead: what a test starts would inherit that they are ignored."""
    for number in STOPS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _disregard)


def _disregard(_number: int, _frame: object) -> None: ...
