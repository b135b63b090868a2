"""Report: a failure in words that can travel between processes and machines."""

from __future__ import annotations

import msgspec

from howdah.codes import code_of
from howdah.retry import lineage, retry_after
from howdah.scrub import describe


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
            hold=getattr(error, "hold", False) if code else False,
        )
