"""Report: a failure in words that can travel between processes and machines."""

from __future__ import annotations

import msgspec

from howdah.errors import Poison
from howdah.handler import Handler
from howdah.job import Job
from howdah.retry import delay_after
from howdah.scrub import describe


class Report(msgspec.Struct, kw_only=True):
    """What went wrong, and whether and when to try again."""

    error: str
    message: str
    traceback: str
    delay: float | None
    """Seconds until the next attempt; ``None``: there must be none."""
    poison: bool = False

    @classmethod
    def of(cls, error: BaseException, job: Job, handler: Handler) -> Report:
        """Describe an error raised by this handler."""
        kind, message, trace = describe(error)
        return cls(
            error=kind,
            message=message,
            traceback=trace,
            delay=delay_after(error, job.attempt, handler.retries),
            poison=isinstance(error, Poison),
        )
