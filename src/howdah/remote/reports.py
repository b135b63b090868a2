"""Sends outcomes to the control plane in batches; a rejected batch is halved until the faulty report is alone."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from howdah.outcome import Ack
from howdah.remote import messages as m
from howdah.remote.client import ControlPlaneUnreachable, RejectedByServer, RequestPacer

MAX_DELAY = 3.2e8
"""Most seconds of a delay, about ten years."""
NOT_STORED = "not kept: "
"""Prefix of the message of a report that was sent without its result."""
BATCH_BYTES = 2 * 1024 * 1024
"""Approximate bytes of one batch; a single report may be larger."""


def report_of(ack: Ack) -> m.AttemptReport:
    """Convert an outcome to the report that is sent."""
    return m.AttemptReport(
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


def without_result(report: m.AttemptReport, why: str) -> m.AttemptReport:
    """Return the report without the result and texts that could not be stored, so that the job does not run again."""
    if (report.message or "").startswith(NOT_STORED):
        return report
    kept = msgspec.structs.replace(report, result=m.nothing(), traceback=None, message=_cut(f"{NOT_STORED}{why}", 2000))
    if report.outcome == "ok":
        return msgspec.structs.replace(kept, error="ResultNotStored")
    return msgspec.structs.replace(kept, error=_printable(report.error))


def in_batches(reports: Sequence[m.AttemptReport], size: int) -> Iterator[list[m.AttemptReport]]:
    """Split reports into batches that are not too many or too large for one request."""
    batch: list[m.AttemptReport] = []
    weight_so_far = 0
    for report in reports:
        weight = len(bytes(report.result)) + len(report.message or "") + len(report.traceback or "")
        if batch and (len(batch) >= size or weight_so_far + weight > BATCH_BYTES):
            yield batch
            batch, weight_so_far = [], 0
        batch.append(report)
        weight_so_far += weight
    if batch:
        yield batch


def _seconds(delay: float) -> float:
    """Return a delay that the control plane accepts; NaN and negative values become 0."""
    return min(delay, MAX_DELAY) if delay > 0 else 0.0


def _printable(text: str | None) -> str | None:
    return "".join(each for each in text if each.isprintable()) if text else text


def _cut(text: str | None, longest: int) -> str | None:
    return text[:longest] if text else text


log = logging.getLogger("howdah")

Key = tuple[int, int | str]
Send = Callable[[m.AckRequest], Awaitable[m.AckResponse | None]]
MAX_BATCH = 1000
"""Reports in one request."""
INVALID = (400, 413)
"""Statuses of a request that would be rejected again."""
BLAMES_REPORT = (*INVALID, 500)
"""Statuses that may be due to a single report of a batch."""
MAX_FAILURES = 16
"""Rejected requests after which batches are no longer halved if not one report was recorded."""
WITHOUT_POSTPONE_FOR = 60.0
"""Seconds without ``postpone`` after an older control plane rejected it; a newer replica may answer next."""
MAX_REJECTIONS = 8
"""Times a report is rejected alone before it is dropped. Its lease then expires, which costs an attempt."""


@dataclass(slots=True)
class _Sending:
    """Progress of one call of ``send``."""

    outcomes: dict[Key, str] = field(default_factory=dict)
    failures: int = 0
    error: RejectedByServer | ControlPlaneUnreachable | None = None
    """Why a report that should be sent again was not recorded."""
    unrecorded: set[int] = field(default_factory=set)
    """Leases of rejected reports; reporting them as finished would release their jobs."""


class ReportSender:
    """Sends the reports of one store. A report that cannot be recorded does not delay the others."""

    def __init__(self, store: str, post: Send) -> None:
        self._store = store
        self._post = post
        self._pacer = RequestPacer()
        self._rejections: Counter[Key] = Counter()
        self._without_postpone_until = 0.0
        self.postponed: set[Key] = set()
        """Rows of the last call that are locked and must be reported again."""

    async def send(self, reports: Sequence[m.AttemptReport], finished: Sequence[int]) -> dict[Key, str]:
        """Send reports; return the recorded outcomes, by token and id.

        Raises if a report should be sent again. All others are recorded by then; repeating them is harmless.
        """
        sending = _Sending()
        self.postponed = set()
        batches = list(in_batches(reports, MAX_BATCH)) or [[]]
        for batch in batches:
            await self._send(batch, finished if batch is batches[-1] else (), sending)
        if sending.error:
            raise sending.error
        self._rejections.clear()
        return sending.outcomes

    async def _send(self, reports: list[m.AttemptReport], finished: Sequence[int], sending: _Sending) -> None:
        done = [token for token in finished if token not in sending.unrecorded]
        await self._pacer.acquire()
        postpone = self._store != m.JOBS and time.monotonic() >= self._without_postpone_until
        try:
            response = await self._post(m.AckRequest(acks=reports, finished=done, store=self._store, postpone=postpone))
        except (RejectedByServer, ControlPlaneUnreachable) as error:
            if postpone and error.status == 400 and "unknown field `postpone`" in str(error):
                self._without_postpone_until = time.monotonic() + WITHOUT_POSTPONE_FOR
                await self._send(reports, finished, sending)
                return
            sending.failures += 1
            hopeless = sending.failures > MAX_FAILURES and not sending.outcomes
            if error.status not in BLAMES_REPORT or not reports or hopeless:
                raise
            if len(reports) > 1:
                half = len(reports) // 2
                await self._send(reports[:half], (), sending)
                await self._send(reports[half:], finished, sending)
            elif (reduced := self._reduced(reports[0], error)) != reports[0]:
                await self._send([reduced], finished, sending)
            else:
                self._rejected(reports[0], error, sending)
        else:
            if response:
                sending.outcomes |= {(each.token, each.id): each.outcome for each in response.accepted}
                self.postponed |= {(each.token, each.id) for each in response.postponed}

    def _reduced(self, report: m.AttemptReport, error: RejectedByServer | ControlPlaneUnreachable) -> m.AttemptReport:
        """Return the report without its result if that is the likely cause; an error of the control plane may pass."""
        likely = error.status in INVALID or self._rejections[report.token, report.id] >= MAX_REJECTIONS // 2
        return without_result(report, str(error)) if likely else report

    def _rejected(
        self, report: m.AttemptReport, error: RejectedByServer | ControlPlaneUnreachable, sending: _Sending
    ) -> None:
        key = (report.token, report.id)
        self._rejections[key] += 1
        sending.unrecorded.add(report.token)
        if self._rejections[key] < MAX_REJECTIONS:
            sending.error = error
        else:
            log.error(
                "the outcome of %s (%s) is dropped, since the control plane rejects it: %s", key[1], self._store, error
            )
