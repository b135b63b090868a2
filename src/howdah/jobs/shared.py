"""What several stores use together: connections, and the channel wake-ups come through."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from howdah.pg.database import Session
from howdah.pg.listen import Listener


class Shared(NamedTuple):
    """Connections that several stores use in turn."""

    claims: Session
    acks: Session
    listener: Listener | None


def channel(schema: str) -> str:
    """The notification channel of a schema."""
    return "howdah_" + hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]
