"""Messages between workers and the control plane, as JSON. The OpenAPI document is generated from these."""

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
"""The id of a job is a number from 1; the id of a row is its key, so any number or text."""
JOBS = "jobs"
"""Name of the job queue as a store; any other store is a table of the application."""


def nothing() -> msgspec.Raw:
    """Return the JSON value of a field that was left out."""
    return msgspec.Raw(b"null")


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all messages; unknown fields are rejected."""


class ResponseMessage(Message, forbid_unknown_fields=False):
    """Base of all responses: a worker ignores fields of a newer control plane."""


class RegisterRequest(Message):
    """Registers a worker."""

    hostname: Name
    kinds: Annotated[list[Name], Meta(max_length=1000)] = []
    """The kinds of jobs it can execute."""
    tables: Annotated[list[Name], Meta(max_length=100)] = []
    """The tables whose rows it can run."""
    queues: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    """The queues it serves; if left out: all queues its token allows."""
    labels: Annotated[list[Name], Meta(max_length=50)] = []
    """Labels that jobs may require, such as ``gpu`` or ``linux/arm64``."""
    slots: Annotated[int, Meta(ge=1, le=10_000)] = 1
    version: Annotated[str, Meta(max_length=100)] = ""


class RegisterResponse(ResponseMessage):
    """Id, credential and intervals of a registered worker."""

    id: Id
    credential: str
    """Bearer token of its later requests. Returned only once."""
    heartbeat: float
    """Seconds between heartbeats."""
    lease: float
    """Seconds for which leases are valid without a heartbeat."""


class HeldJob(Message):
    """One job or row under lease."""

    id: AnyId
    token: Token


class HeartbeatRequest(Message):
    """Renews the leases on everything the worker holds, by store."""

    held: Annotated[dict[str, Annotated[list[HeldJob], Meta(max_length=10_000)]], Meta(max_length=101)] = {}
    running: Annotated[int, Meta(ge=0, le=100_000)] = 0


class RenewalResult(ResponseMessage):
    """Result of a heartbeat for the jobs or rows of one store."""

    kept: list[HeldJob] = []
    lost: list[HeldJob] = []
    cancel: list[AnyId] = []
    """Ids of jobs to cancel."""
    problem: str | None = None
    """Why leases of this store could not be renewed. What is neither kept nor lost may still be held."""


class HeartbeatResponse(ResponseMessage):
    """State of the worker and the result for each store."""

    status: Literal["idle", "busy", "draining"]
    fates: dict[str, RenewalResult] = {}


class ClaimRequest(Message):
    """Claims jobs."""

    max: Annotated[int, Meta(ge=1, le=1000)] = 1
    wait: Annotated[float, Meta(ge=0, le=60)] = 0
    """Seconds to wait for the first one (long poll)."""
    store: Name = JOBS
    room: Annotated[dict[str, Annotated[int, Meta(ge=0, le=100_000)]], Meta(max_length=1000)] = {}
    """Most jobs of each queue that has a limit."""
    number: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    """Increases with every claim of this store. A claim that arrives after a newer one gets a 409."""
    tokens: Annotated[list[Token], Meta(max_length=10_000)] | None = None
    """All tokens it holds of this store. Other leases of older claims are released; if left out: none are."""
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Ignored. Workers of version 0.1 send the largest token they have seen; tokens no longer have an order."""


class ClaimedJob(ResponseMessage):
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


class ClaimResponse(ResponseMessage):
    """Jobs under lease."""

    jobs: list[ClaimedJob]


class AttemptReport(Message):
    """Outcome of one attempt."""

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
    """True if the claimed job has a key."""
    hold: Seconds | None = None
    """Seconds for which no node claims jobs of this kind: the service it needs is rate limited."""
    kind: Name | None = None
    """The kind to hold."""


class AckRequest(Message):
    """Outcomes of many attempts."""

    acks: Annotated[list[AttemptReport], Meta(max_length=2000)]
    finished: Annotated[list[Token], Meta(max_length=2000)] = []
    """Tokens of leases the worker has finished: jobs of theirs without an outcome are released."""
    store: Name = JOBS
    postpone: bool = False
    """True if the worker reads ``postponed`` in the response. If not, a locked row makes the response a 503."""


class RecordedOutcome(ResponseMessage):
    """An accepted outcome, as it was recorded."""

    id: AnyId
    token: Token
    outcome: str


class AckResponse(ResponseMessage):
    """The outcomes of leases that the worker still held."""

    accepted: list[RecordedOutcome]
    postponed: list[HeldJob] = []
    """Rows locked by a transaction: nothing is recorded and the worker still holds them. Report them again soon."""


class ReleaseRequest(Message):
    """Releases jobs or rows that the worker will not run."""

    held: Annotated[list[HeldJob], Meta(max_length=10_000)] = []
    """Single jobs or rows; the worker keeps the others of their leases."""
    tokens: Annotated[list[Token], Meta(max_length=10_000)] = []
    """Whole leases, of the store ``jobs`` only: everything that is left of them."""
    store: Name = JOBS


class ReleaseResponse(ResponseMessage):
    """Number of released jobs."""

    jobs: int


class CompleteRequest(Message):
    """Finishes one job as done."""

    token: Token
    result: msgspec.Raw = msgspec.field(default_factory=nothing)
    took: Annotated[int, Meta(ge=0, le=2**53)] = 0


class FailRequest(Message):
    """Finishes one job as failed."""

    token: Token
    error: Annotated[str, Meta(max_length=200)] = "Error"
    """The class of the error."""
    message: Text | None = None
    traceback: Big | None = None
    code: Annotated[str, Meta(max_length=50)] | None = None
    """RATE_LIMITED, AUTH_FAILED, TIMEOUT, AGENT_ERROR or INVALID_SPEC; it decides whether a retry is useful."""
    retry: bool | None = None
    """Retry or not; if left out, the code decides."""
    retry_after: Seconds | None = None
    hold: Seconds | None = None
    """Seconds for which no node claims jobs of this kind: the service it needs is rate limited."""
    took: Annotated[int, Meta(ge=0, le=2**53)] = 0


class FinishResponse(ResponseMessage):
    """State of a job after its attempt."""

    id: Id
    state: Literal["queued", "done", "failed", "cancelled"]
    retry_in: float | None = None
    """Seconds until the next attempt."""


class LogRequest(Message):
    """Log lines and progress of a running job."""

    token: Token
    lines: Annotated[list[Annotated[str, Meta(max_length=10_000)]], Meta(max_length=1000)] = []
    stream: Literal["stdout", "stderr", "log"] = "log"
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: Annotated[str, Meta(max_length=500)] | None = None


class RunRequest(Message):
    """Record of a run: sent when it starts, with its spec, and when it ends."""

    token: Token
    state: Literal["running", "done", "failed"]
    spec: msgspec.Raw = msgspec.field(default_factory=nothing)
    code: Annotated[str, Meta(max_length=50)] | None = None
    result: msgspec.Raw = msgspec.field(default_factory=nothing)


class EnqueueRequest(Message):
    """Enqueues a job. Fields that are left out have the values of its task, if the application knows it."""

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


class EnqueueResponse(ResponseMessage):
    """Id of the queued job."""

    id: Id
    fresh: bool
    """False if an unfinished job has this key already; the id is that job's."""


class ErrorDetail(ResponseMessage):
    """Code and message of an error."""

    code: str
    message: str
    field: str | None = None
    """The field of the request at fault."""


class ErrorResponse(ResponseMessage):
    """Body of every error response."""

    error: ErrorDetail
