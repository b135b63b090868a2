"""`howdah webhooks`: who is told, and whether they hear it."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest

from howdah.webhooks.relay import Relay
from howdah.webhooks.signature import verify
from howdah.webhooks.webhook import Webhook
from kit.serve_process import free_port
from kit.webhook_receiver import SECRET, Receiver

LOCAL = {"HOWDAH_WEBHOOK_OPS_ALLOW_HTTP": "yes", "HOWDAH_WEBHOOK_OPS_ALLOW_PRIVATE": "yes"}


@pytest.fixture
def declared(database):
    """Two webhooks, as a worker declares them."""
    hooks = [
        Webhook(url="https://hooks.example.com/canary", name="ops", queues=["mail"], secret="canary-canary-canary"),
        Webhook(url="https://chat.example.com/canary", name="chat", on=["job.failed"]),
    ]

    async def declare() -> None:
        relay = Relay(database, {hook.name: hook for hook in hooks})
        await relay.declare()
        await relay.close()

    asyncio.run(declare())


def test_webhooks_are_listed_with_what_waits_for_them(howdah, declared, direct):
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute("select howdah.note('job.failed', '{}', 'other')")
        conn.execute("select howdah.enqueue_own('howdah:webhook:chat', '{}', 5, 60) from generate_series(1, 2)")
        conn.execute(
            """with one as (delete from howdah.ready where lo = (select max(lo) from howdah.ready) returning *)
            insert into howdah.later (id, due_at, priority, attempt, queue, kind)
            select lo, now() + interval '1 minute', priority, 0, queue, kind from one"""
        )

    chat, ops = json.loads(howdah("webhooks", "list", "--json").stdout)
    assert (ops["name"], ops["host"], ops["queues"], ops["notices"]) == ("ops", "hooks.example.com", ["mail"], 0)
    assert (chat["name"], chat["events"], chat["notices"], chat["deliveries"]) == ("chat", ["job.failed"], 1, 2)
    plain = howdah("webhooks", "list").stdout
    assert "hooks.example.com" in plain
    assert "canary" not in plain


def test_without_webhooks_it_says_how_to_have_one(howdah):
    assert howdah("webhooks", "list").stdout.startswith("no webhooks; name one with app.webhook(…)")


def test_a_test_is_sent_now_and_needs_no_database(howdah, nowhere):
    with Receiver() as receiver:
        given = {"HOWDAH_WEBHOOK_OPS_URL": receiver.url, "HOWDAH_WEBHOOK_OPS_SECRET": SECRET, **LOCAL}
        result = howdah("webhooks", "test", "ops", dsn="", **given)

    assert (result.exit_code, result.stdout) == (0, f"ops: 127.0.0.1:{receiver.port} answered HTTP 200\n")
    [letter] = receiver.heard
    assert (letter.content["event"], letter.content["subject"]) == ("webhook.test", {"webhook": "ops"})
    assert verify(letter.headers, letter.body, SECRET)


@pytest.mark.parametrize("status", [204, 404])
def test_the_exit_code_says_whether_it_was_taken(howdah, status):
    with Receiver(status) as receiver:
        result = howdah("webhooks", "test", "ops", "--json", HOWDAH_WEBHOOK_OPS_URL=receiver.url, **LOCAL)

    answer = json.loads(result.stdout)
    assert (answer["status"], answer["error"], result.exit_code) == (status, None, 0 if status < 300 else 1)
    assert answer["id"] == receiver.heard[0].headers["howdah-delivery"]


def test_who_does_not_answer_is_named_and_their_secrets_are_not(howdah):
    port = free_port()
    result = howdah("webhooks", "test", "ops", HOWDAH_WEBHOOK_OPS_URL=f"http://127.0.0.1:{port}/canary", **LOCAL)
    assert result.exit_code == 1
    assert result.stdout == "ops: 127.0.0.1 cannot be reached: ConnectError\n"


def test_one_that_is_not_there_is_a_mistake(howdah, nowhere):
    (nowhere / "chatting.py").write_text(
        "from howdah import Howdah\napp = Howdah()\napp.webhook('https://hooks.example.com/', name='chat')\n"
    )
    result = howdah("webhooks", "test", "ops", "-a", "chatting:app")
    assert (result.exit_code, result.stderr) == (2, "howdah: there is no webhook 'ops' here; there are chat\n")
