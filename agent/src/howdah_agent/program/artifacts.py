"""Artifacts: files a program wrote, found by patterns; the content of small ones is kept.

The program is not trusted, so nothing is followed: each folder and file is opened relative to its parent, symbolic
links are left out, and numbers and sizes are bounded.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

Pattern = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^(?![/~])(?!(.*/)?\.\.(/|\Z))[^\x00-\x1f\\]+\Z")]
"""Patterns of files in the workspace: ``dist/*.whl``, ``reports/**``. Never above it."""
Patterns = Annotated[list[Pattern], Meta(max_length=20)]

MOST_FILES = 100
MOST_BYTES = 256 * 1024 * 1024
"""Maximum total size in bytes."""
SMALL = 16 * 1024
"""Bytes up to which the content of a file is kept."""
MOST_KEPT = 64 * 1024
"""Maximum total bytes of kept content."""
MOST_SEEN = 100_000
DEEPEST = 50
MOST_REASONS = 20
CHUNK = 1024 * 1024
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Parts = tuple[str, ...]


class Artifact(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One file."""

    name: str
    """Its path in the workspace."""
    size: int
    sha256: str
    content: str | None = None
    """Content in base64, if the file is small."""


class Found(msgspec.Struct, kw_only=True):
    """Result of a search."""

    artifacts: list[Artifact] = []
    left_out: list[str] = []
    """Files that were not taken, each with the reason."""


def collect(folder: Path, patterns: Sequence[str]) -> Found:
    """Return the files in a folder that match one of the patterns, by name. Blocks: do not call it in an event loop."""
    search = _Search()
    root = os.open(folder, READ | os.O_DIRECTORY)
    try:
        search.look(root, "", {_parts(pattern) for pattern in patterns}, 0)
    finally:
        os.close(root)
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found = Found()
        self._seen = 0
        self._bytes = 0
        self._kept = 0

    def look(self, folder: int, where: str, patterns: set[Parts], depth: int) -> None:
        """Search an open folder."""
        wanted = _without_folders(patterns)
        with os.scandir(folder) as entries:
            inside = sorted(islice(entries, MOST_SEEN - self._seen + 1), key=lambda entry: entry.name)
        for entry in inside:
            self._seen += 1
            if self._seen > MOST_SEEN:
                self._leave_out(where or ".", f"more than {MOST_SEEN:,} files to look at")
                return
            name = where + entry.name
            if name == ".git":
                continue
            if any(len(parts) == 1 and fnmatchcase(entry.name, parts[0]) for parts in wanted):
                self._take(folder, entry, name)
            below = _below(entry.name, wanted)
            if below and entry.is_dir(follow_symlinks=False):
                self._enter(folder, entry.name, name, below, depth + 1)

    def _enter(self, folder: int, entry: str, name: str, patterns: set[Parts], depth: int) -> None:
        if depth > DEEPEST:
            self._leave_out(name, f"more than {DEEPEST} folders deep")
            return
        try:
            inner = os.open(entry, READ | os.O_DIRECTORY, dir_fd=folder)
        except OSError as error:
            self._leave_out(name, error.strerror)
            return
        try:
            self.look(inner, f"{name}/", patterns, depth)
        finally:
            os.close(inner)

    def _take(self, folder: int, entry: os.DirEntry[str], name: str) -> None:
        if entry.is_dir(follow_symlinks=False):
            return
        if len(self.found.artifacts) >= MOST_FILES:
            self._leave_out(name, f"there are {MOST_FILES} already")
            return
        try:
            name.encode()
            file = os.open(entry.name, READ, dir_fd=folder)
        except UnicodeEncodeError:
            self._leave_out(name, "its name is no text")
        except OSError as error:
            self._leave_out(name, "a symbolic link" if entry.is_symlink() else error.strerror)
        else:
            with os.fdopen(file, "rb", buffering=0) as opened:
                self._measure(opened.fileno(), name)

    def _measure(self, file: int, name: str) -> None:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            self._leave_out(name, "not a plain file")
            return
        digest, size, start = hashlib.sha256(), 0, b""
        while data := os.read(file, CHUNK):
            size += len(data)
            if self._bytes + size > MOST_BYTES:
                self._leave_out(name, f"all together would have more than {MOST_BYTES:,} bytes")
                return
            digest.update(data)
            start = start if len(start) > SMALL else start + data
        self._bytes += size
        made = Artifact(name=name, size=size, sha256=digest.hexdigest())
        if size <= SMALL and self._kept + size <= MOST_KEPT:
            self._kept += size
            made.content = base64.b64encode(start).decode()
        self.found.artifacts.append(made)

    def _leave_out(self, name: str, why: str | None) -> None:
        reasons = self.found.left_out
        if len(reasons) < MOST_REASONS:
            reasons.append(f"{name.encode(errors='replace').decode()}: {why}")
        elif len(reasons) == MOST_REASONS:
            reasons.append("and more")


def _parts(pattern: str) -> Parts:
    """Split a pattern into parts; a final ``**`` means every file below the folder.

    >>> _parts("dist/*.whl"), _parts("./reports/**")
    (('dist', '*.whl'), ('reports', '**', '*'))
    """
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    return (*parts, "*") if parts[-1:] == ("**",) else parts


def _without_folders(patterns: Iterable[Parts]) -> set[Parts]:
    """Return the patterns, and those in which ``**`` stands for no folder."""
    wanted = set()
    for parts in patterns:
        wanted.add(parts)
        while parts[:1] == ("**",):
            parts = parts[1:]
            wanted.add(parts)
    return wanted


def _below(name: str, patterns: Iterable[Parts]) -> set[Parts]:
    """Return the patterns that apply inside a folder of this name."""
    return {
        parts if parts[0] == "**" else parts[1:]
        for parts in patterns
        if len(parts) > 1 and (parts[0] == "**" or fnmatchcase(name, parts[0]))
    }
