"""Report: a failure in words that can travel between processes and machines."""

from __future__ import annotations

import msgspec

from howdah.codes import code_of
from howdah.retry import attribute, lineage, retry_after, seconds
from howdah.scrub import describe

LONGEST_HOLD = 3600.0
"""Seconds a kind is held at most, by what a handler says."""


class Report(msgspec.Struct, kw_only=True):
    """What went wrong. Whether and when to try again is for the node to decide."""

    error: str
    """The class of the error: its code if it has one, else the name of its type."""
    message: str
    traceback: str
    lineage: list[str]
    retry_after: float | None = None
    code: str | None = None
    hold: bool | float = False
    """Leave this kind of job alone in all of the fleet: until the next try, or for so many seconds."""

    @classmethod
    def of(cls, error: BaseException) -> Report:
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
    """A hold as it can be stored; what is neither a truth value nor a number of seconds is none."""
    # not isinstance: that asks the value itself, whose code may raise
    return bool(asked) if type(asked) is bool else seconds(asked, LONGEST_HOLD) or False
