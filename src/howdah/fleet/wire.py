"""Between the messages and what the engine knows."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from howdah.arguments import DEEPEST, LARGEST
from howdah.fleet import messages as m
from howdah.fleet.refusal import Refused, bad
from howdah.job import Job
from howdah.outcome import Ack, Outcome
from howdah.scrub import LONGEST_TRACEBACK, hide, scrub, shorten

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_TEXT = re.compile(rb'"[^"]*"')
_OTHER = bytes(byte for byte in range(256) if byte not in b"[]{}")


def claimed(job: Job) -> m.Claimed:
    """A job as a worker is told of it."""
    return m.Claimed(
        id=job.id,
        token=job.token,
        queue=job.queue,
        kind=job.kind,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        args=msgspec.Raw(job.payload or b"null"),
        key=job.key,
        timeout=job.timeout,
        meta=msgspec.Raw(job.meta_json or b"null"),
        trace=job.trace,
        waited=job.waited,
    )


def ack_of(report: m.Report, told: Sequence[str] = ()) -> Ack:
    """What a worker said, as the store takes it; ``told``: what it was told in confidence."""
    job = Job(report.id, "", "", report.attempt, report.attempt + 1, report.token, b"", "?" if report.keyed else None)
    return Ack(
        job,
        Outcome(report.outcome),
        report.took,
        raw(report.result, "result"),
        report.delay,
        clean(report.error, told),
        clean(report.message, told),
        clean(report.traceback, told),
    )


def clean(text: str | None, told: Sequence[str] = ()) -> str | None:
    """What a worker says of an error, bounded and without what is or looks like a secret."""
    return None if text is None else scrub(shorten(hide(text, told), LONGEST_TRACEBACK))


def raw(value: msgspec.Raw, field: str | None = None) -> bytes | None:
    """JSON as it came, if it came."""
    return None if bytes(value) == b"null" else checked(bytes(value), field)


def checked(data: bytes, field: str | None = None) -> bytes:
    """JSON as it came, or a clear word why it cannot be kept: PostgreSQL, or whoever reads it, would choke."""
    if len(data) > LARGEST:
        raise Refused(413, "TOO_LARGE", f"{len(data):,} bytes of JSON, {LARGEST:,} are allowed", field=field)
    if b"\\u" in data:
        if _NUL.search(data):
            raise bad("a NUL character cannot be stored", field)
        try:
            msgspec.json.decode(data)  # half a surrogate pair has the form of JSON, and nobody can read it
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad(f"this is not JSON: {error}", field) from None
    if data.count(b"[") + data.count(b"{") > DEEPEST and not is_flat(data):
        raise bad(f"lists and objects may be within each other {DEEPEST} deep", field)
    return data


def is_flat(data: bytes) -> bool:
    """Whether JSON is at most ``DEEPEST`` levels deep: so often the innermost brackets are taken away.

    >>> is_flat(b'[' * 100 + b']' * 100), is_flat(b'[' * 101 + b']' * 101), is_flat(b'["[[["]')
    (True, False, True)
    """
    left = _TEXT.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b"")).translate(None, _OTHER)
    for _ in range(DEEPEST):
        if not left:
            return True
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return not left


def job_of(claimed: m.Claimed) -> Job:
    """A job as a worker holds it."""
    return Job(
        claimed.id,
        claimed.queue,
        claimed.kind,
        claimed.attempt,
        claimed.max_attempts,
        claimed.token,
        bytes(claimed.args),
        claimed.key,
        claimed.timeout,
        raw(claimed.meta),
        claimed.trace,
        claimed.waited,
    )
