"""`howdah webhooks`: list and test webhooks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import click
import msgspec

from howdah import config
from howdah.app import Howdah
from howdah.cli.output import age, dump, finish, show
from howdah.cli.parameters import as_json
from howdah.cli.target import Target, run, targeted
from howdah.errors import ConfigError
from howdah.postgres import migrate
from howdah.webhooks.delivery import Notice, WebhookSender
from howdah.webhooks.post import Undelivered
from howdah.webhooks.relay import WebhookRow, list_webhooks
from howdah.webhooks.webhook import Webhook

TEST = "webhook.test"
COLUMNS = {
    "name": lambda row: row.name,
    "host": lambda row: row.host,
    "events": lambda row: row.events,
    "queues": lambda row: row.queues if row.queues is not None else "all",
    "kinds": lambda row: row.kinds if row.kinds is not None else "all",
    "known": lambda row: f"{age(row.seen_age)} ago",
    "notices": lambda row: row.notices,
    "deliveries": lambda row: row.deliveries,
}


@click.group()
def webhooks() -> None:
    """List and test webhooks.

    An application names them with app.webhook(…), the settings with [[webhook]]. Workers declare them.
    """


@webhooks.command("list")
@as_json
@targeted
def list_(target: Target, as_json: bool) -> None:
    """List the webhooks declared by workers, and their pending deliveries.

    Notices have not become jobs yet; deliveries are jobs, waiting for their first or their next try.
    """

    async def read() -> Sequence[WebhookRow]:
        database = target.database()
        await migrate.check(database)
        return await list_webhooks(database)

    show(run(read()), COLUMNS, as_json=as_json, empty="no webhooks; name one with app.webhook(…) and start a worker")


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test."""

    webhook: str
    host: str
    id: str
    status: int | None
    error: str | None


@webhooks.command()
@click.argument("name")
@as_json
@targeted
def test(target: Target, name: str, as_json: bool) -> None:
    """Send one test message from this machine and print the response. Needs no database.

    The event is webhook.test. Exits 0 when the receiver took it, else 1.

    \b
    howdah webhooks test ops -a shop.jobs:app
    """
    sent = run(_send(_webhook(target, name)))
    if as_json:
        dump(sent)
    elif sent.error is not None:
        click.echo(f"{sent.webhook}: {sent.error}")
    else:
        click.echo(f"{sent.webhook}: {sent.host} answered HTTP {sent.status}")
    finish(0 if sent.status is not None and 200 <= sent.status < 300 else 1)


def _webhook(target: Target, name: str) -> Webhook:
    settings = target.settings()
    app = config.load_app(settings.app) if settings.app is not None else Howdah()
    app.webhooks.put(settings.webhooks)
    known = app.webhooks
    if name not in known:
        there = (
            f"; there are {', '.join(sorted(known))}" if known else "; name one with app.webhook(…), or in [[webhook]]"
        )
        raise ConfigError(f"there is no webhook {name!r} here{there}")
    return known[name]


async def _send(webhook: Webhook) -> Sent:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    notice = Notice(id=str(uuid.uuid4()), event=TEST, at=at, subject={"webhook": webhook.name})
    status = error = None
    try:
        status = (await WebhookSender(webhook).send(notice)).status
    except Undelivered as undelivered:
        error = str(undelivered)
    return Sent(webhook=webhook.name, host=webhook.host, id=notice.id, status=status, error=error)
