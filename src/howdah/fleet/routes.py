"""Routes: every one of them in one table, from which the server, the OpenAPI document and the tests are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from howdah.fleet import answers
from howdah.fleet import messages as m
from howdah.fleet.door import Needs

ID = {"id": "The worker."}
JOB = {"id": "The worker.", "job": "The job."}


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that can be asked."""

    method: str
    path: str
    verb: str
    """The method that answers."""
    needs: Needs
    summary: str
    takes: type | None = None
    gives: type | None = None
    status: int = 200
    empty: int | None = None
    """The status when there is nothing to say."""
    may: tuple[int, ...] = ()
    """Errors besides those every route may have."""
    query: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Its parameters, each with its type and what it means."""


ROUTES = (
    Route(
        "POST", "/workers/register", "register", "work", "A worker starts.", m.Register, m.Registered, 201, may=(403,)
    ),
    Route(
        "POST",
        "/workers/{id}/heartbeat",
        "heartbeat",
        "node",
        "A worker lives: renew its leases, hear what it lost and what to cancel.",
        m.Heartbeat,
        m.Beaten,
        may=(404,),
    ),
    Route(
        "POST",
        "/workers/{id}/claim",
        "claim",
        "node",
        "Take jobs, waiting for one if asked to.",
        m.Claim,
        m.Claims,
        empty=204,
        may=(404, 409),
    ),
    Route(
        "POST", "/workers/{id}/ack", "ack", "node", "Say how attempts ended, many at once.", m.Ack, m.Acked, may=(404,)
    ),
    Route(
        "POST",
        "/workers/{id}/release",
        "release",
        "node",
        "Hand jobs back; no attempt is charged.",
        m.Release,
        m.Released,
        may=(404,),
    ),
    Route(
        "POST",
        "/workers/{id}/complete/{job}",
        "complete",
        "node",
        "One job is done; said again it changes nothing.",
        m.Complete,
        m.Ended,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/fail/{job}",
        "fail",
        "node",
        "One job failed; said again it changes nothing.",
        m.Fail,
        m.Ended,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/log/{job}",
        "say",
        "node",
        "What a running job says, and how far it is.",
        m.LogLines,
        status=204,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/run/{job}",
        "note_run",
        "node",
        "The record of a run: that it began, and what came of it.",
        m.RunNote,
        status=204,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/drain",
        "drain",
        "node or admin",
        "Let a worker take no more; what it runs goes on.",
        None,
        answers.Worker,
        may=(404,),
    ),
    Route(
        "DELETE",
        "/workers/{id}",
        "leave",
        "node or admin",
        "A worker ends; what it held is free.",
        status=204,
        may=(404,),
    ),
    Route(
        "GET",
        "/workers",
        "workers",
        "read",
        "All nodes, newest first.",
        gives=answers.Workers,
        query={"status": (str | None, "Only those idle, busy, draining or offline.")},
    ),
    Route("GET", "/workers/{id}", "worker", "read", "One node.", gives=answers.Worker, may=(404,)),
    Route("POST", "/jobs", "enqueue", "enqueue", "Enqueue a job.", m.Enqueue, m.Enqueued, 201),
    Route("GET", "/jobs/{job}", "job", "read", "How a job stands.", gives=answers.JobStatus, may=(404,)),
    Route(
        "POST",
        "/jobs/{job}/cancel",
        "cancel",
        "admin",
        "Cancel a job.",
        None,
        answers.Said,
        may=(404,),
        query={
            "state": (Literal["queued", "running"] | None, "Only in this state; otherwise it is left alone: changed.")
        },
    ),
    Route(
        "GET",
        "/jobs/{job}/log",
        "log",
        "read",
        "What a job said.",
        gives=answers.Lines,
        may=(404,),
        query={"after": (int, "Only lines after this one.")},
    ),
    Route("GET", "/jobs/{job}/runs", "runs", "read", "The runs of a job.", gives=answers.Runs, may=(404,)),
    Route(
        "GET", "/stats", "stats", "read", "How much waits and runs, and how many nodes there are.", gives=answers.Stats
    ),
    Route("GET", "/health", "health", "nothing", "Whether the process lives."),
    Route("GET", "/ready", "ready", "nothing", "Whether the database answers.", may=(503,)),
    Route("GET", "/metrics", "metrics", "read", "Metrics for Prometheus."),
    Route("GET", "/openapi.json", "openapi", "nothing", "This document."),
)
