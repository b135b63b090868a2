"""Webhooks: those of one application, by name, and what a node does for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Unpack

from howdah.errors import ConfigError
from howdah.handler import Handler
from howdah.notices.delivery import Mail
from howdah.notices.relay import Relay
from howdah.notices.webhook import AT_ONCE, MOST_BESIDE, QUEUE, Webhook, WebhookSettings
from howdah.pg.database import Database
from howdah.work.options import WorkerOptions


class Webhooks(Mapping[str, Webhook]):
    """Who is told. ``bring``: makes the handler of deliveries a task of the application."""

    def __init__(self, bring: Callable[[Handler], object]) -> None:
        self._bring = bring
        self._known: dict[str, Webhook] = {}

    def add(self, url: str, **settings: Unpack[WebhookSettings]) -> Webhook:
        """Tell whoever is at this URL: ``app.webhook("https://hooks.example.com/7", on=["job.failed"], secret=…)``."""
        made = Webhook(url=url, **settings)
        if made.name in self._known:
            raise ConfigError(f"two webhooks are named {made.name!r}; give one of them name=…")
        self.put([made])
        return made

    def put(self, webhooks: Iterable[Webhook]) -> None:
        """Tell these as well, each in place of the one that has its name."""
        for each in webhooks:
            self._known[each.name] = each
            self._bring(Mail(each).handler())

    def serving(self, options: WorkerOptions) -> WorkerOptions:
        """These options for a node that knows webhooks: it delivers, whatever else it serves, and few at once."""
        if not self._known:
            return options
        at_once = AT_ONCE + min(len(self._known) - 1, MOST_BESIDE)
        queues = options.queues if options.queues is None else {QUEUE: None, **options.queues}
        return replace(options, queues=queues, limits={QUEUE: at_once, **options.limits})

    def relay(self, database: Database) -> Relay | None:
        """What a node does for them besides delivering."""
        return Relay(database, self._known) if self._known else None

    def __getitem__(self, name: str) -> Webhook:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
