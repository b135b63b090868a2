"""What several stores use together: connections, and the channel wake-ups come through."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from howdah.pg.database import Session
from howdah.pg.listen import Listener


@dataclass(slots=True)
class Shared:
    """Connections that several stores use in turn, and the newest token that any of them has had."""

    claims: Session
    acks: Session
    listener: Listener | None
    newest: int = 0


def channel(schema: str) -> str:
    """The notification channel of a schema."""
    return "howdah_" + hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]
