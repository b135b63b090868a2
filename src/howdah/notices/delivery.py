"""Delivery: one notice on its way to its webhook, as a job like any other: retried, counted, seen by people."""

from __future__ import annotations

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
from howdah.notices.webhook import Webhook
from howdah.retry import Backoff
from howdah.scrub import scrub, shorten
from howdah.version import __version__

BACKOFF = Backoff(first=10.0, cap=3600.0)
ATTEMPTS = 33
"""With this backoff, about a day."""
TIMEOUT = PATIENCE + 5
"""Of the job; what it waits for is over before."""
LEAVE_ALONE = 10.0
"""Seconds a receiver that did not answer is not called: a line of deliveries must not wait for it one by one."""
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

    def handler(self) -> Handler:
        """The handler of its deliveries."""

        async def deliver(id: str, event: str, at: str, subject: dict[str, Any]) -> dict[str, int]:
            notice = Notice(id=id, event=event, at=at, subject=subject)
            return {"status": await self._deliver(notice, current_job().attempt)}

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

    async def _deliver(self, notice: Notice, attempt: int) -> int:
        """Deliver, or raise what says when to try again."""
        if time.monotonic() < self._silent_until:
            raise Retry(f"{self.webhook.host} did not answer a moment ago", after=BACKOFF.delay(attempt))
        try:
            answer = await self.send(notice)
        except Undelivered as error:
            self._silent_until = time.monotonic() + LEAVE_ALONE
            raise Retry(str(error), after=BACKOFF.delay(attempt)) from None
        if 200 <= answer.status < 300:
            return answer.status
        said = f"{self.webhook.host} answered HTTP {answer.status}"
        if answer.status == GONE:
            raise Poison(said)
        # never sooner than by the backoff: a receiver that always says "in a second" would use up all attempts at once
        asked = min(answer.retry_after or 0.0, BACKOFF.cap)
        raise Retry(said, after=max(asked, BACKOFF.delay(attempt)))


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
