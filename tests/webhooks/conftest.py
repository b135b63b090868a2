"""What tests of notices ask for: a receiver, and an application that tells it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kit.webhook_receiver import SECRET, Receiver

NAMES = ("HOWDAH_WEBHOOK",)
LOCAL = {"allow_http": True, "allow_private": True, "secret": SECRET, "name": "ops"}
"""What makes the receiver of a test acceptable."""


@pytest.fixture(autouse=True)
def no_webhook_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver
