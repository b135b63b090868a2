"""Guard: the parent of a program, in its process group; kills the group when the worker has died.

Run as a script with nothing but the standard library, so that it starts at once. Its arguments: the file descriptor of
a socket whose other end the worker holds, the seconds between TERM and KILL, whether the program is given LC_CTYPE, the
folder to remove when the worker has died or ``-``, and the command. It exits as the program did.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import NoReturn

REMOVE_WITHIN = 30.0
"""Seconds."""


def main() -> None:
    """Run the command until it ends, or until the socket closes."""
    lifeline, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[5:]
    # handlers, not SIG_IGN: an ignored signal would stay ignored in the program
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    os.set_blocking(heard, False)
    signal.set_wakeup_fd(told)
    try:
        program = subprocess.Popen(command, env=_environment())  # noqa: S603 - running it is what we are for
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
    # the program has its own copies; the guard's would keep the pipes open after it closed them
    silence = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(silence, each)
    while program.poll() is None:
        ready, _, _ = select.select([lifeline, heard], [], [], 5.0)
        if heard in ready:
            os.read(heard, 4096)
        if lifeline in ready and not os.read(lifeline, 1):
            _end(program, grace)
    end_as(program.returncode)


def _environment() -> dict[str, str]:
    """Return the environment without the LC_CTYPE that Python adds where no locale is set."""
    return {name: value for name, value in os.environ.items() if name != "LC_CTYPE" or sys.argv[3] == "given"}


def _end(program: subprocess.Popen[bytes], grace: float) -> None:
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + grace
    while program.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    if sys.argv[4] != "-":
        _remove_afterwards(sys.argv[4])
    os.killpg(0, signal.SIGKILL)


def _remove_afterwards(folder: str) -> None:
    """Remove a folder once the group is killed, from a process outside of it: this one is killed as well."""
    guard = os.getpid()
    if remover := os.fork():
        os.setpgid(remover, remover)  # started by the guard: it must have left the group before the group is killed
        return
    os.chdir("/")
    until = time.monotonic() + REMOVE_WITHIN
    while os.getppid() == guard and time.monotonic() < until:
        time.sleep(0.01)
    while os.path.lexists(folder) and time.monotonic() < until:  # processes being killed may still write
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)
    os._exit(0)


def end_as(code: int) -> NoReturn:
    """Exit as another process did: with its exit code, or by its signal (a negative code)."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
