"""Failure reports: the description of an error that is sent between processes and machines."""

from __future__ import annotations

import msgspec

from howdah.errors import code_of
from howdah.redact import describe
from howdah.retry import attribute, lineage, retry_after, seconds

LONGEST_HOLD = 3600.0
"""Seconds that a handler can put a kind on hold at most."""


class FailureReport(msgspec.Struct, kw_only=True):
    """The description of a failure. The node decides whether and when to retry."""

    error: str
    """The class of the error: its code if it has one, else the name of its type."""
    message: str
    traceback: str
    lineage: list[str]
    retry_after: float | None = None
    code: str | None = None
    hold: bool | float = False
    """Put this kind of job on hold on all nodes: until the next attempt, or for this many seconds."""

    @classmethod
    def of(cls, error: BaseException) -> FailureReport:
        """Describe an error."""
        kind, message, trace = describe(error)
        code = code_of(error)
        return cls(
            error=code or kind,
            message=message,
            traceback=trace,
            lineage=lineage(error),
            retry_after=retry_after(error),
            code=code,
            hold=_hold(attribute(error, "hold")) if code else False,
        )


def _hold(asked: object) -> bool | float:
    """Return a hold that can be stored; a value that is neither a bool nor a number of seconds means no hold."""
    # not isinstance: it can run code of the value, which may raise
    return bool(asked) if type(asked) is bool else seconds(asked, LONGEST_HOLD) or False
