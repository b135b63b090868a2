"""Work that is done stays done, whatever becomes of its result."""

from __future__ import annotations

import pytest

from howdah.outcome import Outcome
from kit import unstorable_results
from kit.process_executor import acks

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("executor", "function"),
    [
        ("async", unstorable_results.returns_later),
        ("thread", unstorable_results.returns),
        ("process", unstorable_results.returns),
    ],
    ids=["async", "thread", "process"],
)
async def test_a_result_that_cannot_be_stored_is_no_failure(executor, function):
    found = await acks(executor, function, *({"what": what} for what in unstorable_results.UNSTORABLE))

    ended = {what: (ack.outcome, ack.error) for what, ack in zip(unstorable_results.UNSTORABLE, found, strict=True)}
    assert ended == dict.fromkeys(unstorable_results.UNSTORABLE, (Outcome.OK, "ResultNotStored"))
    assert all(ack.message and len(ack.message) <= 2000 for ack in found)
