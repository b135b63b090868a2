"""Outgoing: how attempts ended, as a worker tells the control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from howdah.fleet import messages as m
from howdah.outcome import Ack

LONGEST = 3.2e8
"""Seconds of a delay at most, about ten years."""
NOT_KEPT = "not kept: "
LARGEST = 2 * 1024 * 1024
"""Bytes of one batch, more or less; a single report may have more."""


def report_of(ack: Ack) -> m.Report:
    """An outcome as the control plane is told of it."""
    return m.Report(
        id=ack.job.id,
        token=ack.job.token,
        attempt=ack.job.attempt,
        outcome=ack.outcome.value,  # type: ignore[arg-type]
        took=max(0, min(ack.took, 2**53)),
        result=msgspec.Raw(ack.result or b"null"),
        delay=_seconds(ack.delay),
        error=_cut(ack.error, 200),
        message=_cut(ack.message, 10_000),
        traceback=_cut(ack.traceback, 20_000),
        keyed=ack.job.key is not None,
        hold=_seconds(ack.hold) if ack.hold else None,
        kind=ack.job.kind if ack.hold else None,
    )


def bare(report: m.Report, why: str) -> m.Report:
    """The same outcome without what could not be kept; the work itself must not be done again for that."""
    if (report.message or "").startswith(NOT_KEPT):
        return report
    kept = msgspec.structs.replace(report, result=m.nothing(), traceback=None, message=_cut(f"{NOT_KEPT}{why}", 2000))
    if report.outcome == "ok":
        return msgspec.structs.replace(kept, error="ResultNotStored")
    return msgspec.structs.replace(kept, error=_printable(report.error))


def in_batches(reports: Sequence[m.Report], most: int) -> Iterator[list[m.Report]]:
    """Reports in parts, none of them too many or too large to be sent at once."""
    batch: list[m.Report] = []
    size = 0
    for report in reports:
        weight = len(bytes(report.result)) + len(report.message or "") + len(report.traceback or "")
        if batch and (len(batch) >= most or size + weight > LARGEST):
            yield batch
            batch, size = [], 0
        batch.append(report)
        size += weight
    if batch:
        yield batch


def _seconds(delay: float) -> float:
    """A delay the control plane takes; one that is no number is none."""
    return min(delay, LONGEST) if delay > 0 else 0.0


def _printable(text: str | None) -> str | None:
    return "".join(each for each in text if each.isprintable()) if text else text


def _cut(text: str | None, longest: int) -> str | None:
    return text[:longest] if text else text
