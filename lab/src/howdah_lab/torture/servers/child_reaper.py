"""Parent of one program and everything it starts, which kills them when its owner has died.

``kept`` runs this file as a script, on the standard library alone, and keeps the other end of its standard input. What
the program leaves behind becomes this process's child, so that nothing is ever orphaned and no zombie looks alive. When
nothing of it is left this process ends; at the end of its input, everything is killed, unmounted and removed first.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
REMOVE_TIMEOUT = 30.0


def keep(plan: dict[str, Any]) -> None:
    """Start what is planned, wait for its end or that of our owner, and clear up."""
    wakeup = _wake_when_children_end()
    if plan["command"]:
        _start(plan)
    os.write(1, b"\n")
    while not _owner_left(wakeup):
        if plan["command"] and not _reap():
            return
    end_all(os.getpid())
    _clear(plan["mounts"], plan["folder"])


def below(root: int) -> dict[int, str]:
    """The processes that descend from ``root``, also indirectly, and their states; dead ones are left out."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b") ")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(name))
                states[int(name)] = state.decode()
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return {pid: states[pid] for pid in found[1:] if states[pid] not in "ZX"}


def end_all(root: int) -> None:
    """Kill everything below ``root``, until nothing is left."""
    while pids := below(root):
        send(pids, signal.SIGKILL)
        if root == os.getpid():
            _reap()
        time.sleep(0.005)


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to all that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _start(plan: dict[str, Any]) -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    subprocess.Popen(  # noqa: S603 - our own command, without a shell
        plan["command"],
        stdin=subprocess.DEVNULL,
        stdout=2,
        cwd=plan["cwd"],
        env=plan["environment"],
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        **plan["account"],
    )


def _wake_when_children_end() -> socket.socket:
    wakeup, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    return wakeup


def _owner_left(wakeup: socket.socket) -> bool:
    readable, _, _ = select.select([0, wakeup.fileno()], [], [])
    if wakeup.fileno() in readable:
        wakeup.recv(64)
    return 0 in readable


def _reap() -> bool:
    """Return whether there are children left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _clear(mounts: list[str], folder: str | None) -> None:
    for mount in mounts:
        while os.path.ismount(mount):
            subprocess.run(["umount", "--lazy", mount], check=True)  # noqa: S603, S607
    until = time.monotonic() + REMOVE_TIMEOUT
    # A server that is still ending may write once more while its folder is removed.
    while folder and os.path.lexists(folder) and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


if __name__ == "__main__":
    keep(json.loads(sys.argv[1]))
