"""Other people's libraries: connections to enqueue through.

A library is loaded here only when the caller already has one of its connections at hand.
"""

from __future__ import annotations

from importlib import import_module

from howdah.pg.borrow import Borrowed

LIBRARIES = ("psycopg", "sqlalchemy", "django")


def borrow(conn: object) -> Borrowed | None:
    """Wrap a connection of another library, or ``None`` if it is none we know."""
    # __class__, not type(): tracers hand out proxies, which name there what they stand for
    origins = {parent.__module__.partition(".")[0] for parent in conn.__class__.__mro__}
    for library in LIBRARIES:
        if library in origins:
            borrowed: Borrowed | None = import_module(f"howdah.contrib.with_{library}").borrow(conn)
            if borrowed is not None:
                return borrowed
    return None
