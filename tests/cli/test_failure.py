"""Exit codes for what a server says when it goes away."""

from __future__ import annotations

import asyncpg
import pytest

from howdah.cli.output import INCOMPLETE, UNREACHABLE, explain


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), UNREACHABLE),
        (asyncpg.exceptions.AdminShutdownError("terminating connection due to administrator command"), UNREACHABLE),
        (asyncpg.exceptions.CannotConnectNowError("the database system is starting up"), UNREACHABLE),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), UNREACHABLE),
        (asyncpg.UniqueViolationError("duplicate key value"), INCOMPLETE),
    ],
    ids=["closed", "shutdown", "starting", "crowded", "refused"],
)
def test_a_server_that_goes_away_is_unreachable(error, code):
    explained = explain(error)

    assert explained is not None
    assert explained[1] == code
