"""Other people's libraries: connections to enqueue through.

A library is loaded here only when the caller already has one of its connections at hand.
"""

from __future__ import annotations

from importlib import import_module

from howdah.postgres.foreign import ForeignConnection

LIBRARIES = ("psycopg", "sqlalchemy", "django")


def wrap(conn: object) -> ForeignConnection | None:
    """Wrap a connection of another library, or ``None`` if it is none we know."""
    # __class__, not type(): tracers hand out proxies, which name there what they stand for
    origins = {parent.__module__.partition(".")[0] for parent in conn.__class__.__mro__}
    for library in LIBRARIES:
        if library in origins:
            wrapped: ForeignConnection | None = import_module(f"howdah.contrib.with_{library}").wrap(conn)
            if wrapped is not None:
                return wrapped
    return None
