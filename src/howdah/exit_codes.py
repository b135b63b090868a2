"""Exit codes and signals of processes: their description, and exiting like another process."""

from __future__ import annotations

import os
import resource
import signal
from typing import NoReturn


def ended(code: int) -> str:
    """Describe how a process ended; a negative code is the signal that killed it.

    >>> ended(2), ended(-9), ended(-40)
    ('exited with code 2', 'was killed by SIGKILL', 'was killed by signal 40')
    """
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """Name a signal; realtime signals have only a number.

    >>> signal_name(15), signal_name(40)
    ('SIGTERM', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end_as(code: int) -> NoReturn:
    """Exit as another process did: with its exit code, or by its signal (a negative code)."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
