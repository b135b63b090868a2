"""Guardian of an embedded PostgreSQL: stops the server when its last client disconnects.

``embedded`` runs this file as a script, in a session of its own and on the standard library alone, and
hands it three descriptors: the folder's lock, the listening socket and, as stderr, the log. Every process
that uses the server keeps one connection open; when the last one closes, for whatever reason, the server
is stopped. Each connection is told one line of JSON: ``{"port": 5432}`` as soon as the server was started,
and ``{"error": "..."}`` when it is gone.
"""

from __future__ import annotations

import ctypes
import json
import locale
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FAST = 1.5  # seconds for a fast shutdown, then it is made an immediate one
LOG_LIMIT = 16 * 1024 * 1024

SETTINGS = {
    "listen_addresses": "",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
    "max_connections": "200",
    "shared_buffers": "256MB",
}


class ServerGone(Exception):
    """The server could not start, or ended by itself; the message says why."""


class Guardian:
    """One PostgreSQL and the connections of its users."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.folder = Path(plan["folder"])
        self.data = self.folder / "data"
        self.sockets = Path(plan["sockets"])
        self.port = plan["port"] or 5432
        self.listener = socket.socket(fileno=plan["listener"])
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.users: set[socket.socket] = set()
        self.parting: socket.socket | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.leaving = False
        self.log_start = os.fstat(2).st_size
        self._watch_signals()

    def run(self) -> None:
        """Start the server, serve until the last user is gone, stop the server."""
        try:
            self._create()
            self._launch()
            self._serve()
        except (ServerGone, OSError) as failure:
            if not isinstance(failure, ServerGone):
                with suppress(OSError):  # the log may be on the disk that is full
                    traceback.print_exc()
            self._tell_why(str(failure))
        finally:
            # First, so that a process that starts now waits for the lock and starts its own server.
            self.listener.close()
            with suppress(OSError):
                (self.sockets / "guardian").unlink()
            self._stop()
            self._clear()

    def _create(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise ServerGone(f"{self.data} holds no PG_VERSION and is not opened; restore it, or use another folder")
        # Made as a draft and renamed, so that a data folder that exists is a whole one.
        draft = self.folder / "data.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        self._give(draft)
        secret = self.sockets / "secret"
        secret.unlink(missing_ok=True)
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            self._give(file.fileno())
            file.write((self.folder / "password").read_text())
        command = ["initdb", "-D", str(draft), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}"]
        command += ["-E", "UTF8", f"--locale={_locale()}", "--no-sync", "--no-instructions"]
        try:
            made = self._spawn(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said = made.communicate()[0].decode(errors="replace")
        finally:
            secret.unlink(missing_ok=True)
        if made.returncode:
            shutil.rmtree(draft, ignore_errors=True)
            raise ServerGone(f"initdb failed in {self.folder}: {_last_lines(said)}")
        draft.rename(self.data)

    def _launch(self) -> None:
        self._forget_stale_files()
        settings = SETTINGS | {"unix_socket_directories": _quoted(self.sockets), "port": str(self.port)}
        if self.plan["port"]:
            settings["listen_addresses"] = "127.0.0.1"
        options = [f"-c{name}={value}" for name, value in (settings | self.plan["settings"]).items()]
        # The server and all its processes hold the lock too: if this process is killed, no other can
        # start a second server on the same data before the first one is entirely gone.
        command = ["postgres", "-D", str(self.data), *options]
        self.server = self._spawn(command, stdout=2, pass_fds=(self.plan["lock"],))

    def _forget_stale_files(self) -> None:
        # Holding the lock, we know that no server of ours is left. One started by hand does not hold the lock; its
        # processes, also those that outlived it, are known by the folder they work in.
        for stale in self.sockets.glob(".s.PGSQL.*"):
            stale.unlink()
        pid_file = self.data / "postmaster.pid"
        lines = pid_file.read_text().splitlines(keepends=True) if pid_file.exists() else []
        if (pid := _at_work_in(self.data, "".join(lines[:1]).strip())) is not None:
            raise ServerGone(f"process {pid} already runs PostgreSQL in {self.data}; stop it first")
        if not lines:  # the server crashed as it began to write it
            pid_file.unlink(missing_ok=True)
        elif os.path.exists("/proc/self/cwd"):
            self._disown(pid_file, lines)

    def _disown(self, pid_file: Path, lines: list[str]) -> None:
        # PostgreSQL refuses to start over the pid of a process that lives, which may be anybody's by now. Our own pid
        # is its parent's, which it knows to be stale, and it still checks the shared memory that the file names.
        draft = pid_file.with_name("postmaster.pid.new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            self._give(file.fileno())
            file.write("".join([f"{os.getpid()}\n", *lines[1:]]))
        draft.replace(pid_file)

    def _serve(self) -> None:
        assert self.server is not None
        while not self.leaving:
            self._meet()
            if not self.users:
                return
            if self.parting:
                self.parting.close()
                self.parting = None
            if self.server.poll() is not None:
                raise ServerGone(self._why())
            if os.fstat(2).st_size > LOG_LIMIT:
                os.ftruncate(2, 0)
            for key, _ in self.selector.select(30.0):
                if key.fileobj in self.users:
                    self._hear(key.fileobj)
                elif key.fileobj is self.alarm:
                    self.alarm.recv(64)

    def _meet(self) -> None:
        with suppress(BlockingIOError):
            while True:
                user, _ = self.listener.accept()
                user.setblocking(False)
                self.users.add(user)
                self.selector.register(user, selectors.EVENT_READ)
                _tell(user, port=self.port)

    def _hear(self, user: Any) -> None:
        with suppress(OSError):
            if user.recv(4096):
                return
        self.selector.unregister(user)
        self.users.remove(user)
        # Not closed yet: the last one to leave sees the end of the line when the server is gone.
        self.parting = user

    def _tell_why(self, message: str) -> None:
        with suppress(BlockingIOError):
            while True:
                self.users.add(self.listener.accept()[0])
        for user in self.users:
            _tell(user, error=message)

    def _stop(self) -> None:
        if self.server is None:
            return
        acts = [(signal.SIGINT, FAST), (signal.SIGQUIT, 6.0), (signal.SIGKILL, None)]
        # Data that is thrown away needs no last checkpoint, which can take seconds.
        for act, seconds in acts[1:] if self.plan["temporary"] else acts:
            self.server.send_signal(act)
            with suppress(subprocess.TimeoutExpired):
                self.server.wait(seconds)
                return

    def _clear(self) -> None:
        if self.sockets.parent != self.folder:
            shutil.rmtree(self.sockets, ignore_errors=True)
        if self.plan["temporary"]:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _watch_signals(self) -> None:
        # A signal writes to this pair, so the loop wakes at once when the server ends or TERM arrives.
        self.alarm, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.detach(), warn_on_full_buffer=False)
        self.selector.register(self.alarm, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._leave)
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)

    def _leave(self, *_: object) -> None:
        self.leaving = True

    def _spawn(self, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        if self.plan["account"]:
            uid, gid = self.plan["account"]
            how |= {"user": uid, "group": gid, "extra_groups": []}
        environment = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
        return subprocess.Popen(  # noqa: S603 - our own command, without a shell
            [os.path.join(self.plan["bin"], command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=environment | {"LC_ALL": "C"},
            # Runs after the change of user, which would undo it.
            preexec_fn=_die_with(os.getpid()),
            **how,
        )

    def _give(self, path: Path | int) -> None:
        if self.plan["account"]:
            os.chown(path, *self.plan["account"])

    def _why(self) -> str:
        with open(self.folder / "log", "rb") as log:
            log.seek(self.log_start)
            said = log.read(LOG_LIMIT).decode(errors="replace")
        if self.plan["port"] and "could not bind" in said:
            return f"port {self.port} of 127.0.0.1 is taken; name another one, or none"
        where = "" if self.plan["temporary"] else f"; its log is {self.folder / 'log'}"
        return f"PostgreSQL {self.plan['major']} stopped: {_last_lines(said)}{where}"


def _tell(user: socket.socket, **message: object) -> None:
    with suppress(OSError):
        user.send(json.dumps(message).encode() + b"\n")


def _die_with(parent: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def die_with_parent() -> None:
        prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG; to PostgreSQL, SIGINT means a fast shutdown
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent


def _at_work_in(data: Path, first: str) -> str | None:
    for pid in [first, *os.listdir("/proc")] if os.path.exists("/proc/self/cwd") else []:
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip() if pid.isdecimal() else ""
            if name == "postgres" and os.path.samefile(f"/proc/{pid}/cwd", data):
                return pid
    return None


def _locale() -> str:
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return "C"
    return "C.UTF-8"


def _quoted(path: Path) -> str:
    return '"' + str(path).replace('"', '""') + '"'


def _last_lines(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines()[-6:] if line.strip())


if __name__ == "__main__":
    # Forked once more, so that the process that started us does not have to reap us.
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    Guardian(json.loads(sys.argv[1])).run()
    os._exit(0)  # at once: a client that sees the connection close relies on this process being gone
