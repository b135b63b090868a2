"""Secrets in the record of a row."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from howdah import Secret
from kit.node import drain

pytestmark = pytest.mark.anyio

CANARY = "Kanarienvogel-4711"


@dataclass
class Upload:
    id: int
    kind: Secret[str]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_record_can_hold_secrets_that_no_text_shows(app, uploads, rows, plain):
    got = []
    table = app.table("uploads", record=Upload, max_attempts=1)

    def plainly(upload: Upload) -> None:
        got.append(upload)
        raise RuntimeError(f"no {upload.kind.reveal()}")

    async def asynchronously(upload: Upload) -> None:
        plainly(upload)

    table.handler(plainly if plain else asynchronously)
    await rows.add(kind=CANARY)
    await drain(app)

    assert got == [Upload(1, Secret(CANARY))]
    assert (await rows.one())["failure_message"] == "RuntimeError: no ***"
