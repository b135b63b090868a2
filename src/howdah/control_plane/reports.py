"""Worker reports: conversion, checks against leases, and idempotent recording."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from howdah.arguments import DEEPEST, LARGEST
from howdah.control_plane.errors import RequestRejected, invalid
from howdah.job import Job
from howdah.jobs.ack import CODES
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.redact import LONGEST_TRACEBACK, hide, scrub, shorten
from howdah.remote import messages as m

REPORT_TTL = 3600.0
"""Seconds for which a repeated report is recognised."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_STRING = re.compile(rb'"[^"]*"')
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class ReportRecorder:
    """Checks reports against the leases of the worker before they are recorded."""

    def __init__(self, database: Database, session: Session) -> None:
        self._session = session
        self._sql = sql.load("howdah.control_plane", schema=database.schema)

    async def covered(self, node: int, acks: Sequence[Ack]) -> list[Ack]:
        """Return the reports on jobs under the lease they name, with the attempt as the lease has it.

        A report that names a lease the node no longer has is kept as well: it is a replay and records nothing.
        """
        if not acks:
            return []
        once = unique(acks)  # a job reported twice in one batch would run twice
        tokens, ids = [ack.job.token for ack in once], [ack.job.id for ack in once]
        covered: dict[int, Ack] = dict(enumerate(once, 1))
        for place, attempt in await self._session.fetch(self._sql["covered_jobs"], node, tokens, ids):
            job = covered[place].job
            if attempt is None:
                del covered[place]
            elif attempt != job.attempt:
                covered[place].job = Job(job.id, "", "", attempt, attempt + 1, job.token, b"")
        return list(covered.values())

    async def already_retried(self, node: int, acks: Sequence[Ack], accepted: Sequence[Ack]) -> list[Ack]:
        """Return the retries that an earlier, identical report recorded, as when its response was lost."""
        known = {(ack.job.token, ack.job.id) for ack in accepted}
        left = [ack for ack in acks if ack.outcome is Outcome.RETRY and (ack.job.token, ack.job.id) not in known]
        if not left:
            return []
        rows = await self._session.fetch(self._sql["find_retries"], node, [ack.job.id for ack in left])
        before = {(row["id"], row["attempt"]) for row in rows}
        return [ack for ack in left if (ack.job.id, ack.job.attempt) in before]

    async def finish(self, node: int, ack: Ack, *, last: bool) -> str | None:
        """Record one outcome together with the response; return the state, or ``None`` if the lease is lost.

        ``last``: nothing else is left of the lease.
        """
        job = ack.job
        outcome = (CODES[ack.outcome], ack.delay, ack.took, ack.result, ack.error, ack.message, ack.traceback)
        finished = [job.token] if last else []
        values = (node, job.token, job.id, job.attempt, *outcome, finished)
        state = await self._session.fetchval(self._sql["finish_job"], *values)
        return None if state is None else str(state)

    async def prune(self) -> None:
        """Delete responses older than ``REPORT_TTL``. Safe in every replica."""
        await self._session.fetch(self._sql["prune_reports"], REPORT_TTL)


def unique(acks: Sequence[Ack]) -> list[Ack]:
    """Return each job or row once; of several reports on the same one the last counts."""
    return list({(ack.job.token, ack.job.id): ack for ack in acks}.values())


def ack_of(report: m.AttemptReport, secrets: Sequence[str] | None = ()) -> Ack:
    """Convert a report to the outcome that a store records; ``secrets`` are removed from its texts.

    ``None``: they are not known, so no text is kept.
    """
    job = Job(report.id, "", "", report.attempt, report.attempt + 1, report.token, b"", "?" if report.keyed else None)
    return Ack(
        job,
        Outcome(report.outcome),
        report.took,
        json_or_none(report.result, "result"),
        report.delay,
        scrub_text(report.error, secrets),
        scrub_text(report.message, secrets),
        scrub_text(report.traceback, secrets),
    )


def scrub_text(text: str | None, secrets: Sequence[str] | None = ()) -> str | None:
    """Bound the text of an error and remove secrets, known ones and those that look like one."""
    if text is None or secrets is None:
        return text and "***"
    return scrub(shorten(hide(text, secrets), LONGEST_TRACEBACK))


# ---------------------------------------------------------------- JSON that is stored as it came


def json_or_none(value: msgspec.Raw, field: str | None = None) -> bytes | None:
    """Return the checked JSON, or ``None`` if it was left out."""
    return None if bytes(value) == b"null" else check_json(bytes(value), field)


def check_json(data: bytes, field: str | None = None) -> bytes:
    """Reject JSON that PostgreSQL, or a later reader, would fail on."""
    if len(data) > LARGEST:
        raise RequestRejected(413, "TOO_LARGE", f"{len(data):,} bytes of JSON, {LARGEST:,} are allowed", field=field)
    if b"\\u" in data:
        if _NUL.search(data):
            raise invalid("a NUL character cannot be stored", field)
        try:
            msgspec.json.decode(data)  # half a surrogate pair is valid JSON by its form, but cannot be decoded
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid(f"this is not JSON: {error}", field) from None
    if data.count(b"[") + data.count(b"{") > DEEPEST and not within_depth(data):
        raise invalid(f"lists and objects may be nested {DEEPEST} deep", field)
    return data


def within_depth(data: bytes) -> bool:
    """Return whether JSON is at most ``DEEPEST`` levels deep, by removing the innermost brackets that often.

    >>> within_depth(b'[' * 100 + b']' * 100), within_depth(b'[' * 101 + b']' * 101), within_depth(b'["[[["]')
    (True, False, True)
    """
    left = _STRING.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b"")).translate(None, _NOT_BRACKETS)
    for _ in range(DEEPEST):
        if not left:
            return True
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return not left
