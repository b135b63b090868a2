"""Delivery of a notice to its webhook, by an ordinary job: with retries, metrics and a page in the dashboard."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import msgspec

from howdah.errors import Poison, Retry
from howdah.handler import Handler, PlatformHandler
from howdah.job import current_job
from howdah.outcome import Snooze
from howdah.redact import scrub, shorten
from howdah.retry import Backoff
from howdah.version import __version__
from howdah.webhooks.post import POST_TIMEOUT, PostResponse, Undelivered
from howdah.webhooks.signature import sign
from howdah.webhooks.webhook import CALLS_PER_WEBHOOK, Webhook

BACKOFF = Backoff(first=10.0, cap=3600.0)
ATTEMPTS = 33
"""With this backoff they take about a day."""
JOB_TIMEOUT = POST_TIMEOUT + 5
"""Seconds of the job; its request times out before."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds without calls to a receiver that did not respond, doubled with each failure in a row, so that deliveries do
not time out one after the other."""
SLOT_TIMEOUT, SLOT_POLL = 0.5, 0.02
"""Seconds a delivery waits for a free call slot while no call starts or ends, and between two checks."""
MAX_MESSAGE = 500
"""Characters of an error message that are sent."""
GONE = 410

PAGES = {"job.failed": ("jobs/", "id"), "consumer.halted": ("consumer?name=", "consumer")}
"""Page of the dashboard and field of the subject, by event."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An event, as the receiver gets it."""

    id: str
    """The same for every delivery attempt."""
    event: str
    at: str
    subject: dict[str, Any]
    link: str | None = None


class WebhookSender:
    """Delivers notices to one webhook."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        self._client = webhook.client()
        self._paused_until = 0.0
        self._failures = 0
        """Calls in a row without a response."""
        self._calls = 0
        """Running calls."""
        self._last_change = 0.0
        """When a call last started or ended."""

    def handler(self) -> Handler:
        """Return the handler of the delivery jobs."""

        async def deliver(id: str, event: str, at: str, subject: dict[str, Any]) -> dict[str, int] | Snooze:
            notice = Notice(id=id, event=event, at=at, subject=subject)
            status = await self._deliver(notice, current_job().attempt)
            return status if isinstance(status, Snooze) else {"status": status}

        return PlatformHandler(self.webhook.kind, deliver, retries=BACKOFF)

    async def send(self, notice: Notice) -> PostResponse:
        """Send a notice once; raise :class:`Undelivered` if there was no response."""
        url = httpx.URL(self.webhook.url)
        body, timestamp = msgspec.json.encode(_outgoing(notice, self.webhook)), int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"Howdah/{__version__}",
            "Howdah-Event": notice.event,
            "Howdah-Delivery": notice.id,
            "Howdah-Timestamp": str(timestamp),
        }
        if self.webhook.secrets:
            headers["Howdah-Signature"] = sign(self.webhook.secrets, timestamp, body)
        return await self._client.post(url, body, headers)

    async def _deliver(self, notice: Notice, attempt: int) -> int | Snooze:
        """Deliver, or raise :class:`Retry`. A snooze means that the receiver was not called, which costs no attempt."""
        began = time.monotonic()
        # Polling, not an asyncio event: an event belongs to one event loop, and an application may run in several.
        while self._calls >= CALLS_PER_WEBHOOK and self._may_wait(began):  # noqa: ASYNC110
            await asyncio.sleep(SLOT_POLL)
        # A receiver that did not respond gets one call at a time, so that it takes only one slot of the node.
        if self._calls >= (1 if self._failures else CALLS_PER_WEBHOOK) or time.monotonic() < self._paused_until:
            return self._later()
        answer = await self._call(notice, attempt)
        if 200 <= answer.status < 300:
            return answer.status
        problem = f"{self.webhook.host} answered HTTP {answer.status}"
        if answer.status == GONE:
            raise Poison(problem)
        # Never before the backoff: a receiver that always asks for a second would use up all attempts at once.
        asked = min(answer.retry_after or 0.0, BACKOFF.cap)
        raise Retry(problem, after=max(asked, BACKOFF.delay(attempt)))

    def _may_wait(self, began: float) -> bool:
        return time.monotonic() < min(self._last_change + SLOT_TIMEOUT, began + POST_TIMEOUT / 2)

    async def _call(self, notice: Notice, attempt: int) -> PostResponse:
        self._calls += 1
        self._last_change = time.monotonic()
        try:
            answer = await self.send(notice)
        except Undelivered as error:
            self._failures += 1
            pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 30), LONGEST_PAUSE)
            self._paused_until = time.monotonic() + pause
            raise Retry(str(error), after=BACKOFF.delay(attempt)) from None
        finally:
            self._calls -= 1
            self._last_change = time.monotonic()
        self._failures = 0
        return answer

    def _later(self) -> Snooze:
        paused = max(0.0, self._paused_until - time.monotonic())
        return Snooze(paused + random.uniform(1, 5))  # noqa: S311 - jitter


def _outgoing(notice: Notice, webhook: Webhook) -> Notice:
    """Return the notice as it is sent: message scrubbed and cut, with a link to the dashboard if it has a URL."""
    subject = dict(notice.subject)
    if isinstance(subject.get("message"), str):
        subject["message"] = shorten(scrub(subject["message"]), MAX_MESSAGE)
    link = None
    if webhook.link is not None:
        page, key = PAGES.get(notice.event, ("jobs?queue=", "queue"))
        link = f"{webhook.link.rstrip('/')}/{page}{quote(str(subject.get(key, '')), safe='')}"
    return msgspec.structs.replace(notice, subject=subject, link=link)
