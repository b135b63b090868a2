"""Delivery: one notice on its way to its webhook, as a job like any other: retried, counted, seen by people."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import msgspec

from howdah.courier import PATIENCE, Answer, Undelivered
from howdah.errors import Poison, Retry
from howdah.handler import Handler
from howdah.job import current_job
from howdah.notices.signature import sign
from howdah.notices.webhook import AT_ONCE, Webhook
from howdah.outcome import Snooze
from howdah.retry import Backoff
from howdah.scrub import scrub, shorten
from howdah.version import __version__

BACKOFF = Backoff(first=10.0, cap=3600.0)
ATTEMPTS = 33
"""With this backoff, about a day."""
TIMEOUT = PATIENCE + 5
"""Of the job; what it waits for is over before."""
LEAVE_ALONE, LONGEST_SILENCE = 1.0, 60.0
"""Seconds a receiver that did not answer is not called, doubled with each call in a row: deliveries must not wait for
it one by one."""
QUEUED, POLL = 0.5, 0.02
"""Seconds without an answer after which a delivery no longer waits for those before it, and between two looks."""
LONGEST_MESSAGE = 500
GONE = 410

PAGES = {"job.failed": ("jobs/", "id"), "consumer.halted": ("consumer?name=", "consumer")}
"""Of the dashboard, by what is told."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, as a receiver reads it."""

    id: str
    """The same however often it is delivered."""
    event: str
    at: str
    subject: dict[str, Any]
    link: str | None = None


class Mail:
    """Delivers to one webhook."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        self._courier = webhook.courier()
        self._silent_until = 0.0
        self._failures = 0
        """Calls in a row that were not answered."""
        self._calls = 0
        """Calls under way."""
        self._moved_at = 0.0
        """When a call last began or ended."""

    def handler(self) -> Handler:
        """The handler of its deliveries."""

        async def deliver(id: str, event: str, at: str, subject: dict[str, Any]) -> dict[str, int] | Snooze:
            notice = Notice(id=id, event=event, at=at, subject=subject)
            status = await self._deliver(notice, current_job().attempt)
            return status if isinstance(status, Snooze) else {"status": status}

        return Handler(self.webhook.kind, deliver, retries=BACKOFF)

    async def send(self, notice: Notice) -> Answer:
        """Send it now, once; raises :class:`Undelivered` when nobody answered."""
        url = httpx.URL(self.webhook.url)
        body, timestamp = msgspec.json.encode(_fit(notice, self.webhook)), int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"Howdah/{__version__}",
            "Howdah-Event": notice.event,
            "Howdah-Delivery": notice.id,
            "Howdah-Timestamp": str(timestamp),
        }
        if self.webhook.secrets:
            headers["Howdah-Signature"] = sign(self.webhook.secrets, timestamp, body)
        return await self._courier.post(url, body, headers)

    async def _deliver(self, notice: Notice, attempt: int) -> int | Snooze:
        """Deliver, or raise what says when to try again. A snooze: the receiver was not called, which is no attempt."""
        began = time.monotonic()
        # no event: it would belong to one event loop, and an app may work in several
        while self._calls >= AT_ONCE and time.monotonic() < min(self._moved_at + QUEUED, began + PATIENCE / 2):  # noqa: ASYNC110
            await asyncio.sleep(POLL)
        # one that did not answer is called by one delivery at a time, so that it takes one slot of the node
        if self._calls >= (1 if self._failures else AT_ONCE) or time.monotonic() < self._silent_until:
            return self._later()
        answer = await self._call(notice, attempt)
        if 200 <= answer.status < 300:
            return answer.status
        said = f"{self.webhook.host} answered HTTP {answer.status}"
        if answer.status == GONE:
            raise Poison(said)
        # never sooner than by the backoff: a receiver that always says "in a second" would use up all attempts at once
        asked = min(answer.retry_after or 0.0, BACKOFF.cap)
        raise Retry(said, after=max(asked, BACKOFF.delay(attempt)))

    async def _call(self, notice: Notice, attempt: int) -> Answer:
        self._calls += 1
        self._moved_at = time.monotonic()
        try:
            answer = await self.send(notice)
        except Undelivered as error:
            self._failures += 1
            silence = min(LEAVE_ALONE * 2 ** min(self._failures - 1, 30), LONGEST_SILENCE)
            self._silent_until = time.monotonic() + silence
            raise Retry(str(error), after=BACKOFF.delay(attempt)) from None
        finally:
            self._calls -= 1
            self._moved_at = time.monotonic()
        self._failures = 0
        return answer

    def _later(self) -> Snooze:
        silent = max(0.0, self._silent_until - time.monotonic())
        return Snooze(silent + random.uniform(1, 5))  # noqa: S311 - not all at once


def _fit(notice: Notice, webhook: Webhook) -> Notice:
    """The notice as it goes out: its text hidden and cut, with a link where there is a dashboard."""
    subject = dict(notice.subject)
    if isinstance(subject.get("message"), str):
        subject["message"] = shorten(scrub(subject["message"]), LONGEST_MESSAGE)
    link = None
    if webhook.link is not None:
        page, key = PAGES.get(notice.event, ("jobs?queue=", "queue"))
        link = f"{webhook.link.rstrip('/')}/{page}{quote(str(subject.get(key, '')), safe='')}"
    return msgspec.structs.replace(notice, subject=subject, link=link)
