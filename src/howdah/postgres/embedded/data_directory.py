"""The folder of an embedded PostgreSQL: made, checked, locked; nothing outside it is ever changed.

data          the database cluster
run           the sockets, unless its path is too long for one: then a short folder in /tmp
password      of the superuser, readable by its owner alone
log           what PostgreSQL said; log.old is from the run before
howdah.lock   held while a guardian or any process of PostgreSQL is alive
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from howdah.errors import ConfigError, DatabaseFull
from howdah.postgres.embedded.binaries import Account, Binaries, blocked, find

SOCKET_PATH_LIMIT = 100  # the kernel allows 107 bytes, some systems 103
MEGABYTE = 1024 * 1024
ROOM, ROOM_AT_FIRST = 4 * MEGABYTE, 64 * MEGABYTE
"""Bytes a disk must have left to start a server, and to make a new one."""
SHORT = Path("/tmp")  # noqa: S108 - only ever a folder of ours in it, mode 0700


def prepare(home: Path, user: Account | None) -> Path:
    """Return ``home`` made, or found to be ours, and open to ``user`` who will run the server."""
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            # Root's folder must let the other user through; what is inside is closed to everybody else.
            mode = 0o711 if user else 0o700
            home.mkdir(mode)
            home.chmod(mode)  # whatever the umask
    if not home.is_dir() or not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{home} is not a folder that this user can write to; use another one")
    names = os.listdir(home)
    if names and "howdah.lock" not in names:
        raise ConfigError(f"{home} is neither empty nor an embedded PostgreSQL of Howdah; use another folder")
    if user and (where := blocked(home, user)):
        raise ConfigError(
            f"PostgreSQL runs as user {user.name} when started by root, and that user may not enter {where}; "
            f"use a folder it can reach, such as one in /var/lib or /var/tmp, or run as a normal user"
        )
    return home


def check_room(home: Path) -> None:
    """Raise :class:`DatabaseFull` unless the disk of ``home`` has room for a server to start."""
    needed = ROOM if (home / "data").exists() else ROOM_AT_FIRST
    free = shutil.disk_usage(home).free
    if free < needed:
        raise DatabaseFull(
            f"the disk of {home} has {free // MEGABYTE} MB left, PostgreSQL needs {needed // MEGABYTE} MB to start;"
            " free some, or use another folder"
        )


def temporary(user: Account | None) -> Path:
    """Return a new folder that ``user`` can reach, even where the temporary folder is private."""
    places = [Path(tempfile.gettempdir()).resolve(), Path("/var/tmp"), SHORT]  # noqa: S108
    place = next((place for place in places if not (user and blocked(place, user))), SHORT)
    home = Path(tempfile.mkdtemp(prefix="howdah-", dir=place))
    if user:
        home.chmod(0o711)
    return home


def major_of(home: Path) -> int | None:
    """Return the major version of the data in ``home``, None if there is no data yet."""
    path = home / "data" / "PG_VERSION"
    try:
        text = path.read_text()
    except FileNotFoundError:
        if _holds_something(path.parent):
            raise ConfigError(f"{path} is missing, so {_DAMAGED}") from None
        return None
    except PermissionError as error:
        raise ConfigError(f"{home} is another user's: {error}; use a folder of your own") from error
    if not text.strip().isdecimal():
        raise ConfigError(f"{path} is {'not a number' if text.strip() else 'empty'}, so {_DAMAGED}")
    return int(text)


def binaries_for(home: Path | None, version: int | None) -> Binaries:
    """Return the binaries of ``version``, by default those of the data in ``home``; raise if they cannot read it."""
    chosen = find(version)
    held = major_of(home) if home else None
    if held in (None, chosen.major):
        return chosen
    if version is None:
        with suppress(ConfigError):
            return find(held)
    raise ConfigError(
        f"{home} holds data of PostgreSQL {held}, which PostgreSQL {chosen.major} cannot read; "
        f"install PostgreSQL {held} or use another folder"
    )


_DAMAGED = "the data beside it is not opened; restore that file or the folder from a backup, or use another folder"


def _holds_something(data: Path) -> bool:
    try:
        return any(data.iterdir())
    except FileNotFoundError:
        return False
    except (NotADirectoryError, PermissionError) as error:
        raise ConfigError(f"{data} cannot be read: {error}; use another folder") from error


def sockets_of(home: Path) -> Path:
    """Return the folder of the sockets, always the same one for the same ``home``."""
    near = home / "run"
    if len(os.fsencode(near / ".s.PGSQL.65535")) <= SOCKET_PATH_LIMIT:
        return near
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return SHORT / f"howdah-{os.geteuid()}-{name}"


def make_sockets(sockets: Path, owner: tuple[int, int] | None) -> None:
    """Make the folder of the sockets, which must be closed to everybody but ``owner``."""
    with suppress(FileExistsError):
        sockets.mkdir(mode=0o700)
    check_sockets(sockets, owner)
    if owner and sockets.lstat().st_uid != owner[0]:
        os.chown(sockets, *owner)


def check_sockets(sockets: Path, owner: tuple[int, int] | None) -> bool:
    """Return whether the folder of the sockets exists; raise if another user can enter it, or made it.

    The name of one in /tmp can be guessed. Another user may have created it first, with a server of their own in it,
    to which a client would send the password.
    """
    try:
        facts = sockets.lstat()
    except FileNotFoundError:
        return False
    expected = (os.geteuid(), owner[0] if owner else os.geteuid())
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in expected or facts.st_mode & 0o077:
        raise ConfigError(f"{sockets} is not a folder that only user {expected[1]} can enter; remove it")
    return True


def make_password(home: Path) -> None:
    """Make the password of a server that has none yet."""
    path = home / "password"
    if path.exists():
        return
    if (home / "data").exists():
        raise ConfigError(f"{path} is missing and the server cannot be logged in to without it; use a new folder")
    # Written as a draft and renamed, so that a password that exists is a whole one.
    draft = path.with_name("password.new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(24))
    draft.rename(path)


def lock(home: Path) -> int | None:
    """Return the descriptor that holds the lock of ``home``, None if another process holds it."""
    descriptor = os.open(home / "howdah.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
