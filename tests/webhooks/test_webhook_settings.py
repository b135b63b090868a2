"""Webhooks in the settings file and the environment."""

from __future__ import annotations

import os
import sys

import pytest

from howdah import ConfigError, config
from howdah.cli.target import Target
from howdah.options import Given
from howdah.webhooks.webhook import EVENTS
from kit.webhook_receiver import SECRET


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith(("HOWDAH_", "DATABASE_URL", "PG")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_the_file_names_webhooks(folder):
    (folder / "howdah.toml").write_text("""
        [[webhook]]
        name = "ops"
        url = "https://hooks.example.com/T0"
        on = ["job.failed", "queue.stuck"]
        queues = ["mail"]
        kinds = ["send"]
        stuck_after = "15m"
        link = "https://howdah.example.com/dashboard"

        [[webhook]]
        url = "http://10.1.2.3/hooks"
        allow_http = true
        allow_private = ["10.1.0.0/16"]
    """)

    ops, other = config.load().webhooks
    assert (ops.name, ops.url, ops.on) == ("ops", "https://hooks.example.com/T0", ["job.failed", "queue.stuck"])
    assert (ops.queues, ops.kinds, ops.stuck_after) == (["mail"], ["send"], 900.0)
    assert (other.name, tuple(other.on), other.allow_private) == ("10.1.2.3", EVENTS, ["10.1.0.0/16"])


def test_the_environment_is_on_top_and_can_say_all_of_it(folder, monkeypatch):
    (folder / "howdah.toml").write_text('[[webhook]]\nname = "on-call"\non = ["job.failed"]\n')
    monkeypatch.setenv("HOWDAH_WEBHOOK_ON_CALL_URL", "https://hooks.example.com/T0")
    monkeypatch.setenv("HOWDAH_WEBHOOK_ON_CALL_SECRET", f"{SECRET}, the old secret of ours")
    monkeypatch.setenv("HOWDAH_WEBHOOK_DEV_URL", "http://localhost:9000/")
    monkeypatch.setenv("HOWDAH_WEBHOOK_DEV_ALLOW_HTTP", "true")
    monkeypatch.setenv("HOWDAH_WEBHOOK_DEV_ALLOW_PRIVATE", "127.0.0.0/8, ::1/128")
    monkeypatch.setenv("HOWDAH_WEBHOOK_DEV_ON", "queue.stuck,queue.moving")
    monkeypatch.setenv("HOWDAH_WEBHOOK_DEV_STUCK_AFTER", "1m")

    settings = config.load()
    on_call, dev = settings.webhooks
    assert (on_call.name, on_call.on, on_call.secrets) == (
        "on-call",
        ["job.failed"],
        (SECRET, "the old secret of ours"),
    )
    assert (dev.name, dev.on, dev.stuck_after) == ("dev", ["queue.stuck", "queue.moving"], 60.0)
    assert dev.allow_private == ["127.0.0.0/8", "::1/128"]
    assert "hooks.example.com/T0" not in repr(settings)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[webhook]]\nname = "ops"', "webhook 'ops' has no url; give it one"),
        (
            '[[webhook]]\nurl = "https://x.example.com"\nevents = []',
            r"webhook 'x\.example\.com' has an unknown key 'events'",
        ),
        ('[[webhook]]\nurl = 7\nname = "ops"', "webhook 'ops': url must be text, got int"),
        ('[[webhook]]\nurl = "https://x.example.com"\nstuck_after = "soon"', "'soon' is not a duration"),
        ('[[webhook]]\nurl = "http://x.example.com"', "not encrypted"),
        ('[webhook]\nurl = "https://x.example.com"', r"write \[\[webhook\]\] above each"),
        ('webhook = "https://x.example.com"', r"write \[\[webhook\]\] above each"),
        ('[[webhook]]\nurl = "https://x.example.com"\n' * 2, "two webhooks have the same name"),
    ],
    ids=range(8),
)
def test_what_is_wrong_is_said_with_the_file(folder, text, why):
    (folder / "howdah.toml").write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        config.load()
    assert str(caught.value).startswith(f"{folder / 'howdah.toml'}: ")


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("STUCK_AFTER", "soon", "HOWDAH_WEBHOOK_OPS_STUCK_AFTER: 'soon' is not a duration"),
        ("STUCK_AFTER", "1s", "HOWDAH_WEBHOOK_OPS_STUCK_AFTER must be at least 10s, got 1s"),
        ("ALLOW_HTTP", "maybe", "HOWDAH_WEBHOOK_OPS_ALLOW_HTTP must be true or false, got 'maybe'"),
        ("ON", "job.lost", "HOWDAH_WEBHOOK_OPS_…: invalid webhook 'ops': there is no event 'job.lost'"),
        ("SECRET", "x", "HOWDAH_WEBHOOK_OPS_…: invalid webhook 'ops': a secret has at least 16 characters"),
    ],
)
def test_what_is_wrong_is_said_with_the_variable(monkeypatch, key, text, why):
    monkeypatch.setenv("HOWDAH_WEBHOOK_OPS_URL", "https://x.example.com")
    monkeypatch.setenv(f"HOWDAH_WEBHOOK_OPS_{key}", text)

    with pytest.raises(ConfigError) as caught:
        config.load()
    assert str(caught.value).startswith(why)


def test_the_settings_add_to_what_the_application_says_and_replace_what_has_the_same_name(folder, monkeypatch):
    (folder / "telling.py").write_text(
        "from howdah import Howdah\n"
        "app = Howdah('postgresql:///x')\n"
        "app.webhook('https://code.example.com/', name='ops')\n"
        "app.webhook('https://code.example.com/', name='code')\n"
    )
    monkeypatch.setenv("HOWDAH_WEBHOOK_OPS_URL", "https://settings.example.com/")
    target = Target({"app": Given("telling:app", "--app")})

    app = target.app()
    target.app()  # some commands ask twice
    assert {name: hook.host for name, hook in app.webhooks.items()} == {
        "ops": "settings.example.com",
        "code": "code.example.com",
    }
