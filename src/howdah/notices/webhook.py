"""Webhook: who outside hears of what. Its URL and its secrets stay in the process: no table, job or log holds them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import httpx2 as httpx

from howdah.courier import Courier, Inside, is_address
from howdah.errors import ConfigError
from howdah.handler import check_name

EVENTS = ("job.failed", "consumer.halted", "queue.stuck", "queue.moving")
KIND = "howdah:webhook:"
"""Before the name of a webhook: the kind of the jobs that deliver to it, which only nodes that know it take."""
QUEUE = "howdah"
AT_ONCE = 4
"""Deliveries of a node to one webhook at once: one that does not answer must not take the slots of other jobs."""
MOST_BESIDE = 8
"""Slots of a node for deliveries to further webhooks, one for each."""
LEAST_STUCK = 10.0
SHORTEST_SECRET = 16


class WebhookSettings(TypedDict, total=False):
    """What may be said of a webhook, besides its URL."""

    name: str
    on: Sequence[str]
    secret: str | Sequence[str] | None
    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    stuck_after: float
    link: str | None
    allow_http: bool
    allow_private: Inside
    ca: str | None


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """One place that is told of events."""

    url: str = field(repr=False)
    name: str = ""
    """Among all of an application; the host unless said."""
    on: Sequence[str] = EVENTS
    """The events it hears of."""
    secret: str | Sequence[str] | None = field(default=None, repr=False)
    """What messages are signed with; several while one takes the place of another."""
    queues: Sequence[str] | None = None
    """Queues whose jobs, and whose standstill, it hears of; ``None``: all."""
    kinds: Sequence[str] | None = None
    """Kinds of jobs it hears of; ``None``: all."""
    stuck_after: float = 600.0
    """Seconds after which a queue in which something waits, and is not taken, is stuck."""
    link: str | None = None
    """Where the dashboard is; messages then lead there."""
    allow_http: bool = False
    """Whether a URL without TLS will do."""
    allow_private: Inside = False
    """Whether it may be on this machine or in a private network: no, yes, or the networks it may be in."""
    ca: str | None = None
    """The file of the authority that signed its certificate."""

    def __post_init__(self) -> None:
        for what in ("on", "queues", "kinds", "allow_private"):
            if isinstance(getattr(self, what), str):
                raise self._wrong(f"{what} is a list, got {getattr(self, what)!r}")
        parsed = self._check_url()
        if not self.name:
            object.__setattr__(self, "name", parsed.host)
        if not re.fullmatch(r"[\w.:-]{1,60}", self.name, re.ASCII):
            raise ConfigError(
                f"a webhook is named by up to 60 letters, digits and - _ . :, got {self.name!r}; give it a name=…"
            )
        for event in self.on:
            if event not in EVENTS:
                raise self._wrong(f"there is no event {event!r}; there are {', '.join(EVENTS)}")
        if not self.on:
            raise self._wrong(f"it hears of nothing; name some of {', '.join(EVENTS)}")
        for what, names in (("queue", self.queues), ("kind", self.kinds)):
            for name in names or ():
                check_name(what, name)
        if not LEAST_STUCK <= self.stuck_after <= 1e9:
            raise self._wrong(f"stuck_after must be from {LEAST_STUCK:g} seconds on, got {self.stuck_after!r}")
        for secret in self.secrets:
            if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
                raise self._wrong(
                    f"a secret has at least {SHORTEST_SECRET} characters; `openssl rand -hex 32` makes one"
                )
        if self.ca is not None and not Path(self.ca).is_file():
            raise self._wrong(f"there is no file {self.ca!r} with its authority")
        if self.link is not None and not self.link.startswith(("https://", "http://")):
            raise self._wrong("link is the URL of a dashboard, such as https://howdah.example.com/dashboard")

    @property
    def kind(self) -> str:
        """The kind of the jobs that deliver to it."""
        return KIND + self.name

    @property
    def host(self) -> str:
        """Where it is, as far as people are shown."""
        return httpx.URL(self.url).netloc.decode("ascii")

    @property
    def secrets(self) -> Sequence[str]:
        """What messages are signed with, the newest first."""
        if self.secret is None:
            return ()
        return (self.secret,) if isinstance(self.secret, str) else tuple(self.secret)

    def courier(self) -> Courier:
        """Who carries messages there."""
        return Courier(inside=self.allow_private, ca=self.ca)

    def _check_url(self) -> httpx.URL:
        """Refuse what could lead elsewhere than it says; the message never holds the URL, which may be a secret."""
        try:
            parsed = httpx.URL(self.url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        if parsed.scheme not in ("https", "http") or not parsed.host or "\\" in self.url or not self.url.isprintable():
            raise self._wrong("its address is no URL; write one such as https://hooks.example.com/howdah")
        if parsed.userinfo:
            raise self._wrong("its URL holds a user or password; sign with secret=… instead")
        if parsed.fragment:
            raise self._wrong("its URL has a fragment, which is never sent; leave out all from # on")
        if parsed.scheme == "http" and not self.allow_http:
            raise self._wrong("its URL is not encrypted; write https://, or allow_http=True")
        courier = self.courier()
        if is_address(parsed.host) and not courier.may(parsed.host):
            raise self._wrong(
                f"{parsed.host} is no public address; say allow_private=True, or the networks it may be in"
            )
        return parsed

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(
            f"webhook {self.name!r} cannot be so: {why}" if self.name else f"a webhook cannot be so: {why}"
        )
