"""Person: who types, as far as the system knows."""

from __future__ import annotations

import getpass
import socket

from howdah.audit import By


def user() -> str | None:
    """Their user name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def person() -> By:
    """Them, for the audit."""
    host = socket.gethostname()
    return By(f"{user() or 'somebody'}@{host}", "cli", host)
