"""Errors of rejected requests, with the message to show."""

from __future__ import annotations

from howdah.errors import HowdahError


class RequestError(HowdahError):
    """Shown as a page of its own: what is wrong, then what to do."""

    def __init__(self, status: int, what: str, fix: str = "") -> None:
        super().__init__(f"{what} {fix}".strip())
        self.status = status
        self.what = what
        self.fix = fix
