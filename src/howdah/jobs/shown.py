"""Shown: a job as people may see it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from howdah.jobs.rows import JobRow
from howdah.redact import Redact, told_in
from howdah.secret import MARK, marks


def shown(row: JobRow, redact: Redact) -> JobRow:
    """The row without its secrets; code that needs them has the row itself."""
    places = marks(row.meta)
    told = told_in(row.args, places)

    def text(part: str, value: str | None) -> str | None:
        return redact.text(value, told, kind=row.kind, part=part)

    return replace(
        row,
        args=redact(row.args, places, kind=row.kind),
        meta=redact(_given(row.meta), kind=row.kind, part="meta"),
        result=redact(row.result, kind=row.kind, part="result"),
        error=text("error", row.error),
        attempts=[
            replace(each, message=text("message", each.message), traceback=text("traceback", each.traceback))
            for each in row.attempts
        ],
    )


def _given(meta: Any) -> Any:
    """What was given at enqueue, without our own mark."""
    if not isinstance(meta, dict) or MARK not in meta:
        return meta
    return {key: value for key, value in meta.items() if key != MARK} or None
