"""Options of a webhook. Its URL and secrets stay in the process: no table, job or log contains them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import httpx2 as httpx

from howdah.errors import ConfigError
from howdah.handler import check_name
from howdah.job import PLATFORM_PREFIX, PLATFORM_QUEUE
from howdah.option_types import WORDS, Duration, List, Switch, Text
from howdah.options import named, option, options_of
from howdah.webhooks.post import OutboundClient, PrivateAccess, is_address

EVENTS = ("job.failed", "consumer.halted", "queue.stuck", "queue.moving")
KIND = f"{PLATFORM_PREFIX}webhook:"
"""Prefix of the kind of delivery jobs, before the webhook's name: only nodes that declare the webhook claim them."""
QUEUE = PLATFORM_QUEUE
CALLS_PER_WEBHOOK = 4
"""Concurrent calls of a node to one webhook: a slow receiver must not take the slots of other jobs."""
MAX_EXTRA_SLOTS = 8
"""Further slots of a node for deliveries, one for each additional webhook."""
LEAST_STUCK = 10.0
SHORTEST_SECRET = 16


class Secrets(List):
    """One secret, or a list of them; in a variable with commas between them."""

    name: ClassVar[str] = "text or list"

    def read(self, value: Any) -> Any:
        """Leave one secret whole: it may hold commas."""
        return value

    def check(self, value: Any) -> None:
        """Accept texts, and show none of them."""
        if not isinstance(value, str | Sequence) or not all(isinstance(each, str) for each in value):
            raise ConfigError("must be text or a list of texts")


class Networks(List):
    """All networks, none, or a list of them."""

    name: ClassVar[str] = "boolean or list"

    def read(self, value: Any) -> Any:
        """Take a boolean or a list."""
        return value if isinstance(value, bool) else super().read(value)

    def parse(self, text: str) -> Any:
        """Take a word or networks."""
        return WORDS[text.lower()] if text.lower() in WORDS else super().parse(text)

    def check(self, value: Any) -> None:
        """Check the list."""
        if not isinstance(value, bool):
            super().check(value)

    def show(self, value: Any) -> str:
        """Write it as it is parsed."""
        return str(value).lower() if isinstance(value, bool) else super().show(value)


class WebhookSettings(TypedDict, total=False):
    """Options of a webhook besides its URL."""

    name: str
    on: Sequence[str]
    secret: str | Sequence[str] | None
    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    stuck_after: float
    link: str | None
    allow_http: bool
    allow_private: PrivateAccess
    ca: str | None


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A URL that gets a message for each event."""

    SECTION: ClassVar[str] = "webhook.<name>"

    url: str = option(..., Text(metavar="URL"), "URL that receives the messages.", secret=True)
    name: str = option(
        "",
        Text(metavar="NAME"),
        "Name of the webhook, up to 60 characters: letters, digits, hyphens, underscores, dots and colons.",
        shown="the host of the URL",
    )
    on: Sequence[str] = option(EVENTS, List(metavar="EVENT"), f"Events to send: {', '.join(EVENTS)}.", shown="all")
    secret: str | Sequence[str] | None = option(
        None,
        Secrets(),
        "Secret that signs the messages, at least 16 characters; several while one replaces another.",
        shown="none: not signed",
        secret=True,
    )
    queues: Sequence[str] | None = option(
        None, List(), "Queues whose failed jobs, and whose standstills, are sent.", shown="all"
    )
    kinds: Sequence[str] | None = option(None, List(), "Kinds of jobs whose failures are sent.", shown="all")
    stuck_after: float = option(
        600.0,
        Duration(least=LEAST_STUCK),
        "Time after which a queue with waiting jobs, none of which starts, is stuck.",
    )
    link: str | None = option(None, Text(metavar="URL"), "URL of the dashboard, to which messages link.", shown="none")
    allow_http: bool = option(False, Switch(), "Allow a URL without TLS.")
    allow_private: PrivateAccess = option(
        False, Networks(), "Allow private addresses and those of this machine: all of them, or those of some networks."
    )
    ca: str | None = option(
        None,
        Text(metavar="FILE"),
        "File of the authority that signed the certificate of the URL.",
        shown="those of the machine",
    )

    def __post_init__(self) -> None:
        for what in ("on", "queues", "kinds", "allow_private"):
            if isinstance(getattr(self, what), str):
                raise self._invalid(f"{what} is a list, got {getattr(self, what)!r}")
        parsed = self._check_url()
        if not self.name:
            object.__setattr__(self, "name", parsed.host)
        if not re.fullmatch(r"[\w.:-]{1,60}", self.name, re.ASCII):
            raise ConfigError(
                f"a webhook is named by up to 60 letters, digits and - _ . :, got {self.name!r}; give it a name=…"
            )
        for event in self.on:
            if event not in EVENTS:
                raise self._invalid(f"there is no event {event!r}; there are {', '.join(EVENTS)}")
        if not self.on:
            raise self._invalid(f"on is empty; name some of {', '.join(EVENTS)}")
        for what, names in (("queue", self.queues), ("kind", self.kinds)):
            for name in names or ():
                check_name(what, name)
        if not LEAST_STUCK <= self.stuck_after <= 1e9:
            raise self._invalid(f"stuck_after must be from {LEAST_STUCK:g} seconds on, got {self.stuck_after!r}")
        for secret in self.secrets:
            if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
                raise self._invalid(
                    f"a secret has at least {SHORTEST_SECRET} characters; `openssl rand -hex 32` makes one"
                )
        if self.ca is not None and not Path(self.ca).is_file():
            raise self._invalid(f"there is no file {self.ca!r} with its authority")
        if self.link is not None and not self.link.startswith(("https://", "http://")):
            raise self._invalid("link is the URL of a dashboard, such as https://howdah.example.com/dashboard")

    @property
    def kind(self) -> str:
        """Kind of its delivery jobs."""
        return KIND + self.name

    @property
    def host(self) -> str:
        """Host and port: the part of the URL that may be shown."""
        return httpx.URL(self.url).netloc.decode("ascii")

    @property
    def secrets(self) -> Sequence[str]:
        """Secrets that messages are signed with, the newest first."""
        if self.secret is None:
            return ()
        return (self.secret,) if isinstance(self.secret, str) else tuple(self.secret)

    def client(self) -> OutboundClient:
        """Return the HTTP client for its messages."""
        return OutboundClient(allow_private=self.allow_private, ca=self.ca)

    def _check_url(self) -> httpx.URL:
        """Reject an ambiguous or unsafe URL; the error never contains the URL, which may be a secret."""
        try:
            parsed = httpx.URL(self.url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        if parsed.scheme not in ("https", "http") or not parsed.host or "\\" in self.url or not self.url.isprintable():
            raise self._invalid("url is not valid; write one such as https://hooks.example.com/howdah")
        if parsed.userinfo:
            raise self._invalid("its URL contains a user or password; sign with secret=… instead")
        if parsed.fragment:
            raise self._invalid("its URL has a fragment, which is never sent; leave out all from # on")
        if parsed.scheme == "http" and not self.allow_http:
            raise self._invalid("its URL is not encrypted; write https://, or allow_http=True")
        client = self.client()  # also checks the networks of allow_private
        if is_address(parsed.host) and not client.allows(parsed.host):
            raise self._invalid(f"{parsed.host} is a private address; set allow_private=True, or to a list of networks")
        return parsed

    def _invalid(self, why: str) -> ConfigError:
        return ConfigError(f"invalid webhook {self.name!r}: {why}" if self.name else f"invalid webhook: {why}")


OPTIONS = {each.name: each for each in options_of(Webhook)}


def webhooks_of(tables: Any, environ: Mapping[str, str], file: str = "") -> list[Webhook]:
    """Return the webhooks of the tables `[[webhook]]` of ``file``, overridden by `HOWDAH_WEBHOOK_<NAME>_<KEY>`.

    Variables with a name that no table has make a further webhook.
    """
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not all(isinstance(t, Mapping) for t in tables):
        raise ConfigError(f"{file}: webhook is a list of tables; write [[webhook]] above each")
    given = {_spelled(_name(table)): _from_table(table, file) for table in tables}
    if len(given) < len(tables):
        raise ConfigError(f"{file}: two webhooks have the same name; give one of them another")
    sources = dict.fromkeys(given, file)
    for variable, text in sorted(environ.items()):
        match = re.fullmatch(rf"HOWDAH_WEBHOOK_(\w+?)_({'|'.join(OPTIONS).upper()})", variable)
        if match and text:
            values = given.setdefault(match[1], {"name": match[1].lower()})
            sources.setdefault(match[1], f"HOWDAH_WEBHOOK_{match[1]}_…")
            try:
                values[match[2].lower()] = OPTIONS[match[2].lower()].parse(text)
            except ConfigError as error:
                raise ConfigError(named(variable, error)) from None
    return [_webhook(values, sources[name]) for name, values in given.items()]


def _from_table(table: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the values of one table of the file."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            raise ConfigError(f"{file}: webhook {_name(table)!r} has an unknown key {key!r}; known keys are {known}")
        try:
            values[key] = OPTIONS[key].read(value)
        except ConfigError as error:
            raise ConfigError(f"{file}: webhook {_name(table)!r}: {named(key, error)}") from None
    return values


def _webhook(values: Mapping[str, Any], source: str) -> Webhook:
    if "url" not in values:
        raise ConfigError(f"{source}: webhook {_name(values)!r} has no url; give it one")
    try:
        return Webhook(**values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _name(table: Mapping[str, Any]) -> str:
    """Return the name of a webhook: the one it is given, else the host of its URL."""
    if isinstance(table.get("name"), str):
        return str(table["name"])
    try:
        return httpx.URL(table.get("url", "")).host
    except (httpx.InvalidURL, TypeError):
        return ""


def _spelled(name: str) -> str:
    """Return a name as variables have it."""
    return re.sub(r"\W", "_", name).upper()
