"""Formatting of jobs in the messages of failed tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from howdah.jobs.rows import JobRow
from howdah.secrets import marks, masked

LONGEST_CALL = 300


def call(kind: str, args: Any) -> str:
    """Format a job as a call.

    >>> call("mail:send", {"user_id": 7, "lang": "de"})
    'mail:send(user_id=7, lang="de")'
    """
    if isinstance(args, dict):
        said = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
    else:
        said = msgspec.json.encode(args).decode()
    return f"{kind}({said if len(said) <= LONGEST_CALL else said[:LONGEST_CALL] + '…'})"


def line(job: JobRow) -> str:
    """Format a job in one line."""
    facts = [f"queue {job.queue}", job.state or "on the move"]
    wait = (job.run_at - datetime.now(UTC)).total_seconds()
    if job.state == "queued" and wait > 0:
        facts[1] = f"due in {wait:.0f} s"
    if job.key is not None:
        facts.append(f"key {job.key!r}")
    if job.error:
        facts.append(job.error.splitlines()[0])
    return f"job {job.id}: {call(job.kind, masked(job.args, marks(job.meta)))}, {', '.join(facts)}"
