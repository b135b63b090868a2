"""Messages: what workers and the control plane say to each other, as JSON. The OpenAPI document is made from these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Text = Annotated[str, Meta(max_length=10_000)]
Big = Annotated[str, Meta(max_length=20_000)]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Token = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=3.2e8)]
AnyId = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str
"""The id of a job is a number from 1; that of a row is whatever its key is, so any number or text."""
JOBS = "jobs"
"""The store of our own queue; any other store is a table of the user's."""


def nothing() -> msgspec.Raw:
    """Any JSON that was left out."""
    return msgspec.Raw(b"null")


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all of them have in common: nothing unknown is let through."""


class Answer(Message, forbid_unknown_fields=False):
    """Base of all answers: a worker ignores fields of a newer control plane."""


class Register(Message):
    """A worker starts."""

    hostname: Name
    kinds: Annotated[list[Name], Meta(max_length=1000)] = []
    """The kinds of jobs it can execute."""
    tables: Annotated[list[Name], Meta(max_length=100)] = []
    """The tables it can work on."""
    queues: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    """The queues it serves; left out: every queue its token allows."""
    labels: Annotated[list[Name], Meta(max_length=50)] = []
    """What it has that jobs may require, as ``gpu`` or ``linux/arm64``."""
    slots: Annotated[int, Meta(ge=1, le=10_000)] = 1
    version: Annotated[str, Meta(max_length=100)] = ""


class Registered(Answer):
    """It is known now, and under which conditions."""

    id: Id
    credential: str
    """What it must show from now on, as its bearer token. Said only once."""
    heartbeat: float
    """Seconds between heartbeats."""
    lease: float
    """Seconds its work stays its own without one."""


class Held(Message):
    """One job in hand."""

    id: AnyId
    token: Token


class Heartbeat(Message):
    """A worker lives, and has this in hand, store by store."""

    held: Annotated[dict[str, Annotated[list[Held], Meta(max_length=10_000)]], Meta(max_length=101)] = {}
    running: Annotated[int, Meta(ge=0, le=100_000)] = 0


class Fate(Answer):
    """What became of the jobs of one store that were named."""

    kept: list[Held] = []
    lost: list[Held] = []
    cancel: list[AnyId] = []
    """Jobs somebody wants cancelled."""
    problem: str | None = None
    """Why this store could not be asked now. What is neither kept nor lost was not renewed and may still be its."""


class Beaten(Answer):
    """The heartbeat was heard."""

    status: Literal["idle", "busy", "draining"]
    fates: dict[str, Fate] = {}


class Claim(Message):
    """A worker wants jobs."""

    max: Annotated[int, Meta(ge=1, le=1000)] = 1
    wait: Annotated[float, Meta(ge=0, le=60)] = 0
    """Seconds to wait for one."""
    store: Name = JOBS
    room: Annotated[dict[str, Annotated[int, Meta(ge=0, le=100_000)]], Meta(max_length=1000)] = {}
    """The most of each queue, where that is limited."""
    number: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    """Rises with every claim the worker makes of this store. A claim that comes after a newer one is answered 409."""
    tokens: Annotated[list[Token], Meta(max_length=10_000)] | None = None
    """All tokens it holds of this store. What older claims gave it beside these goes back; left out: nothing does."""
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Ignored. Workers of version 0.1 send the largest token they have seen; tokens have no order any more."""


class Claimed(Answer):
    """One job under lease."""

    id: AnyId
    token: Token
    queue: str
    kind: str
    attempt: int
    max_attempts: int
    args: msgspec.Raw
    key: str | None = None
    timeout: float | None = None
    meta: msgspec.Raw = msgspec.field(default_factory=nothing)
    trace: str | None = None
    waited: float | None = None


class Claims(Answer):
    """Jobs under lease."""

    jobs: list[Claimed]


class Report(Message):
    """How one attempt ended."""

    id: AnyId
    token: Token
    attempt: Annotated[int, Meta(ge=1, le=32_000)]
    outcome: Literal["ok", "retry", "failed", "poison", "cancelled", "snoozed", "released"]
    took: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """Microseconds."""
    result: msgspec.Raw = msgspec.field(default_factory=nothing)
    delay: Seconds = 0.0
    error: Annotated[str, Meta(max_length=200)] | None = None
    message: Text | None = None
    traceback: Big | None = None
    keyed: bool = False
    """Whether the job has a key, as it was said in the claim."""
    hold: Seconds | None = None
    """Leave this kind alone for so long, in all of the fleet: what it needs answered "not so fast"."""
    kind: Name | None = None
    """Which kind to leave alone."""


class Ack(Message):
    """How many attempts ended."""

    acks: Annotated[list[Report], Meta(max_length=2000)]
    finished: Annotated[list[Token], Meta(max_length=2000)] = []
    """Tokens the worker is through with: jobs of theirs without an outcome are released."""
    store: Name = JOBS
    postpone: bool = False
    """Whether the worker reads ``postponed`` in the answer. If not, a locked row makes the answer a 503."""


class Settled(Answer):
    """An outcome that was accepted, as it was recorded."""

    id: AnyId
    token: Token
    outcome: str


class Acked(Answer):
    """Those that were still the worker's."""

    accepted: list[Settled]
    postponed: list[Held] = []
    """Rows that a transaction has locked: nothing is recorded, they are still the worker's. Report them again soon."""


class Release(Message):
    """A worker hands back what it will not do."""

    held: Annotated[list[Held], Meta(max_length=10_000)] = []
    """Single jobs or rows; the others of their leases stay the worker's."""
    tokens: Annotated[list[Token], Meta(max_length=10_000)] = []
    """Whole leases, of the store ``jobs`` only: all that is left of them."""
    store: Name = JOBS


class Released(Answer):
    """So many jobs went back."""

    jobs: int


class Complete(Message):
    """One job is done."""

    token: Token
    result: msgspec.Raw = msgspec.field(default_factory=nothing)
    took: Annotated[int, Meta(ge=0, le=2**53)] = 0


class Fail(Message):
    """One job failed."""

    token: Token
    error: Annotated[str, Meta(max_length=200)] = "Error"
    """The class of the error."""
    message: Text | None = None
    traceback: Big | None = None
    code: Annotated[str, Meta(max_length=50)] | None = None
    """RATE_LIMITED, AUTH_FAILED, TIMEOUT, AGENT_ERROR or INVALID_SPEC; it decides whether a retry is of use."""
    retry: bool | None = None
    """Whether a retry is of use; left out: as the code says."""
    retry_after: Seconds | None = None
    hold: Seconds | None = None
    """Leave this kind alone for so long, in all of the fleet: what it needs answered "not so fast"."""
    took: Annotated[int, Meta(ge=0, le=2**53)] = 0


class Ended(Answer):
    """What a job is now."""

    id: Id
    state: Literal["queued", "done", "failed", "cancelled"]
    retry_in: float | None = None
    """Seconds until it is tried again."""


class LogLines(Message):
    """What a running job says."""

    token: Token
    lines: Annotated[list[Annotated[str, Meta(max_length=10_000)]], Meta(max_length=1000)] = []
    stream: Literal["stdout", "stderr", "log"] = "log"
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: Annotated[str, Meta(max_length=500)] | None = None


class RunNote(Message):
    """The record of a run: once when it begins, with its spec, and once when it ends."""

    token: Token
    state: Literal["running", "done", "failed"]
    spec: msgspec.Raw = msgspec.field(default_factory=nothing)
    code: Annotated[str, Meta(max_length=50)] | None = None
    result: msgspec.Raw = msgspec.field(default_factory=nothing)


class Enqueue(Message):
    """A job to be run. What is not said is as its task says, where the app knows it."""

    kind: Name
    args: msgspec.Raw = msgspec.field(default_factory=nothing)
    """Its arguments, by name."""
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    delay: Seconds | None = None
    run_at: datetime | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=300)] | None = None
    meta: msgspec.Raw = msgspec.field(default_factory=nothing)
    requires: Annotated[list[Name], Meta(max_length=10)] | None = None
    """Labels a worker must have."""


class Enqueued(Answer):
    """It is queued."""

    id: Id
    fresh: bool
    """False: a live job has this key already, and this is its id."""


class Problem(Answer):
    """Why it was refused."""

    code: str
    message: str
    field: str | None = None
    """The part of the request that is wrong."""


class Refusal(Answer):
    """The body of every error."""

    error: Problem
