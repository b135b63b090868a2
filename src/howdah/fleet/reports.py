"""Reports: send how attempts ended. A batch the control plane refuses is halved until the culprit is alone."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from howdah.fleet import messages as m
from howdah.fleet.client import Turned, Unreachable
from howdah.fleet.ease import Ease
from howdah.fleet.outgoing import bare, in_batches

log = logging.getLogger("howdah")

Key = tuple[int, int | str]
Tell = Callable[[m.Ack], Awaitable[m.Acked | None]]
LARGEST_BATCH = 1000
UNFIT = (400, 413)
"""Statuses of a message that will not get better by itself."""
FAULTY = (*UNFIT, 500)
"""Statuses that may be due to a single report of a batch."""
MOST_FAILURES = 16
"""Refused requests after which no batch is halved any more, while not one report was recorded."""
PLAIN = 60.0
"""Seconds without ``postpone`` after a control plane of an older version refused it; another may answer next."""
GIVE_UP = 8
"""Times a report is refused by itself before it is given up. Its lease expires then, which costs an attempt."""


@dataclass(slots=True)
class _Sending:
    """What came of one call so far."""

    outcomes: dict[Key, str] = field(default_factory=dict)
    failures: int = 0
    error: Turned | Unreachable | None = None
    """Why a report is not recorded that is worth another try."""
    unrecorded: set[int] = field(default_factory=set)
    """Leases of reports that were refused; to call them finished would release their jobs."""


class Reports:
    """Sends reports of one store. One that cannot be recorded does not hold up the others."""

    def __init__(self, store: str, tell: Tell) -> None:
        self._store = store
        self._tell = tell
        self._ease = Ease()
        self._refusals: Counter[Key] = Counter()
        self._plain_until = 0.0
        self.postponed: set[Key] = set()
        """Rows of the last call that are locked and have to be reported again."""

    async def send(self, reports: Sequence[m.Report], finished: Sequence[int]) -> dict[Key, str]:
        """Return the outcomes that were recorded, by token and id.

        Raises when a report should be sent again; by then all others are recorded, and to repeat them does no harm.
        """
        sending = _Sending()
        self.postponed = set()
        batches = list(in_batches(reports, LARGEST_BATCH)) or [[]]
        for batch in batches:
            await self._send(batch, finished if batch is batches[-1] else (), sending)
        if sending.error:
            raise sending.error
        self._refusals.clear()
        return sending.outcomes

    async def _send(self, reports: list[m.Report], finished: Sequence[int], sending: _Sending) -> None:
        over = [token for token in finished if token not in sending.unrecorded]
        await self._ease.turn()
        postpone = self._store != m.JOBS and time.monotonic() >= self._plain_until
        try:
            said = await self._tell(m.Ack(acks=reports, finished=over, store=self._store, postpone=postpone))
        except (Turned, Unreachable) as error:
            if postpone and error.status == 400 and "unknown field `postpone`" in str(error):
                self._plain_until = time.monotonic() + PLAIN
                await self._send(reports, finished, sending)
                return
            sending.failures += 1
            hopeless = sending.failures > MOST_FAILURES and not sending.outcomes
            if error.status not in FAULTY or not reports or hopeless:
                raise
            if len(reports) > 1:
                half = len(reports) // 2
                await self._send(reports[:half], (), sending)
                await self._send(reports[half:], finished, sending)
            elif (less := self._less(reports[0], error)) != reports[0]:
                await self._send([less], finished, sending)
            else:
                self._refused(reports[0], error, sending)
        else:
            if said:
                sending.outcomes |= {(each.token, each.id): each.outcome for each in said.accepted}
                self.postponed |= {(each.token, each.id) for each in said.postponed}

    def _less(self, report: m.Report, error: Turned | Unreachable) -> m.Report:
        """The report without its result, if that is the likely cause; a defect of the control plane may pass."""
        likely = error.status in UNFIT or self._refusals[report.token, report.id] >= GIVE_UP // 2
        return bare(report, str(error)) if likely else report

    def _refused(self, report: m.Report, error: Turned | Unreachable, sending: _Sending) -> None:
        key = (report.token, report.id)
        self._refusals[key] += 1
        sending.unrecorded.add(report.token)
        if self._refusals[key] < GIVE_UP:
            sending.error = error
        else:
            log.error(
                "the outcome of %s (%s) is given up, the control plane refuses it: %s", key[1], self._store, error
            )
