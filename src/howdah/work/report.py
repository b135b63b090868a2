"""Report: a failure in words that can travel between processes and machines."""

from __future__ import annotations

import msgspec

from howdah.retry import lineage, retry_after
from howdah.scrub import describe


class Report(msgspec.Struct, kw_only=True):
    """What went wrong. Whether and when to try again is for the node to decide."""

    error: str
    """The class of the error."""
    message: str
    traceback: str
    lineage: list[str]
    retry_after: float | None = None

    @classmethod
    def of(cls, error: BaseException) -> Report:
        """Describe an error."""
        kind, message, trace = describe(error)
        return cls(error=kind, message=message, traceback=trace, lineage=lineage(error), retry_after=retry_after(error))
