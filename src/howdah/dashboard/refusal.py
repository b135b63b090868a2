"""Refused: a request that is not carried out, with what to tell whoever asked."""

from __future__ import annotations

from howdah.errors import HowdahError


class Refused(HowdahError):
    """Shown as a page of its own: what is wrong, then what to do."""

    def __init__(self, status: int, what: str, fix: str = "") -> None:
        super().__init__(f"{what} {fix}".strip())
        self.status = status
        self.what = what
        self.fix = fix
