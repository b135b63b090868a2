"""Workspaces: one new folder per attempt, always removed at its end."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from howdah.errors import ConfigError

log = logging.getLogger("howdah")

PREFIX = "attempt-"


class WorkspaceRejected(Exception):
    """The request is rejected."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Workspace:
    """The folder of one attempt."""

    def __init__(self, attempt: str, folder: Path) -> None:
        self.attempt = attempt
        self.folder = folder
        self.repository = folder / "repository"
        self.home = folder / "home"
        self.origin: str | None = None
        self.branch: str | None = None
        self.config: bytes | None = None
        """The configuration of the repository as it was cloned."""
        self.head: str | None = None
        self.busy: asyncio.Task[object] | None = None
        self.used = time.monotonic()


class Workspaces:
    """All workspaces, under one folder that is locked by this process."""

    def __init__(self, folder: str, *, slots: int, idle: float) -> None:
        self._root = Path(folder)
        self._slots = slots
        self._idle = idle
        self._all: dict[str, Workspace] = {}
        self.draining = False
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._root.is_symlink() or self._root.stat().st_uid != os.getuid():
            raise ConfigError(f"{folder} must be a folder of our own")
        self._lock = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(f"another sidecar works in {folder}; give each a folder of its own") from None
        for left in self._root.glob(PREFIX + "*"):  # left by a process that was killed
            _remove(left)

    def __len__(self) -> int:
        return len(self._all)

    def open(self, attempt: str, *, fresh: bool = False) -> Workspace:
        """Return the workspace of an attempt, created if it does not exist; ``fresh``: it must not exist."""
        found = self._all.get(attempt)
        if found is not None:
            if fresh:
                raise WorkspaceRejected(
                    409, "CONFLICT", f"attempt {attempt} has a workspace already; every attempt is fresh"
                )
            return found
        if self.draining:
            raise WorkspaceRejected(503, "DRAINING", "the sidecar is about to stop", retry_after=5)
        if len(self._all) >= self._slots:
            raise WorkspaceRejected(
                429, "BUSY", f"{len(self._all)} attempts are at work, which is all there can be", retry_after=5
            )
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._root))
        made = self._all[attempt] = Workspace(attempt, folder)
        made.home.mkdir()
        made.repository.mkdir()
        return made

    def known(self, attempt: str) -> Workspace:
        """Return the existing workspace of an attempt."""
        if attempt not in self._all:
            raise WorkspaceRejected(404, "UNKNOWN", f"attempt {attempt} has no workspace here; clone first")
        return self._all[attempt]

    @contextmanager
    def at_work(self, workspace: Workspace) -> Iterator[None]:
        """Reserve the workspace for one request; it is removed if the request is cancelled or fails."""
        if workspace.busy is not None:
            raise WorkspaceRejected(409, "CONFLICT", f"attempt {workspace.attempt} is at work already")
        workspace.busy = asyncio.current_task()
        try:
            yield
        except BaseException:
            workspace.busy = None
            self.discard(workspace.attempt)
            raise
        finally:
            workspace.busy = None
            workspace.used = time.monotonic()

    def discard(self, attempt: str) -> bool:
        """Remove the workspace of an attempt; a request running in it is stopped first and removes it itself."""
        workspace = self._all.get(attempt)
        if workspace is None:
            return False
        if workspace.busy is not None:
            workspace.busy.cancel()
            return True
        del self._all[attempt]
        _remove(workspace.folder)
        return True

    def sweep(self) -> None:
        """Remove workspaces without a request for too long."""
        old = time.monotonic() - self._idle
        for workspace in [each for each in self._all.values() if each.busy is None and each.used < old]:
            log.warning("attempt %s was left behind; removing its workspace", workspace.attempt)
            self.discard(workspace.attempt)

    async def close(self) -> None:
        """Stop all running requests, and remove all workspaces."""
        working = [each.busy for each in self._all.values() if each.busy is not None]
        for attempt in list(self._all):
            self.discard(attempt)
        if working:
            await asyncio.wait(working)
        for attempt in list(self._all):
            self.discard(attempt)
        os.close(self._lock)


def _remove(folder: Path) -> None:
    """Remove a folder, including read-only parts. Never follows a symbolic link.

    Files that cannot be removed, such as those of another user, are logged and stay.
    """
    _open(folder)
    for path, folders, _files in os.walk(
        folder
    ):  # top down, so that each folder is made accessible before it is entered
        for name in folders:
            _open(os.path.join(path, name))
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        log.error("could not remove all of %s; check it for files of another user", folder)


def _open(folder: str | Path) -> None:
    if not os.path.islink(folder):
        with suppress(OSError):
            os.chmod(folder, stat.S_IRWXU)
