"""Route table, from which the server, the OpenAPI document and the tests are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from howdah.control_plane.auth import Needs
from howdah.control_plane.jobs_api import CancelResponse, JobStatus, LogPage, RunList, StatsResponse
from howdah.control_plane.workers_api import WorkerInfo, WorkerList
from howdah.remote import messages as m

ID = {"id": "The worker."}
JOB = {"id": "The worker.", "job": "The job."}


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path of the API."""

    method: str
    path: str
    verb: str
    """Name of the method that handles it."""
    needs: Needs
    summary: str
    takes: type | None = None
    gives: type | None = None
    status: int = 200
    empty: int | None = None
    """Status of a response without content."""
    may: tuple[int, ...] = ()
    """Error statuses besides those of every route."""
    query: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Query parameters, each with its type and description."""
    default_body: bytes = b""
    """The body of a request that has none; empty: a body is required."""


ROUTES = (
    Route(
        "POST",
        "/workers/register",
        "register",
        "work",
        "Register a worker.",
        m.RegisterRequest,
        m.RegisterResponse,
        201,
        may=(403,),
    ),
    Route(
        "POST",
        "/workers/{id}/heartbeat",
        "heartbeat",
        "node",
        "Renew a worker's leases; returns what it lost and what to cancel.",
        m.HeartbeatRequest,
        m.HeartbeatResponse,
        may=(404,),
    ),
    Route(
        "POST",
        "/workers/{id}/claim",
        "claim",
        "node",
        "Claim jobs, waiting for the first one if asked to.",
        m.ClaimRequest,
        m.ClaimResponse,
        empty=204,
        may=(404, 409),
        default_body=b"{}",
    ),
    Route(
        "POST",
        "/workers/{id}/ack",
        "ack",
        "node",
        "Record the outcomes of many attempts.",
        m.AckRequest,
        m.AckResponse,
        may=(404,),
    ),
    Route(
        "POST",
        "/workers/{id}/release",
        "release",
        "node",
        "Release jobs; no attempt is charged.",
        m.ReleaseRequest,
        m.ReleaseResponse,
        may=(404,),
    ),
    Route(
        "POST",
        "/workers/{id}/complete/{job}",
        "complete",
        "node",
        "Finish one job as done. Idempotent.",
        m.CompleteRequest,
        m.FinishResponse,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/fail/{job}",
        "fail",
        "node",
        "Finish one job as failed. Idempotent.",
        m.FailRequest,
        m.FinishResponse,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/log/{job}",
        "say",
        "node",
        "Store log lines and the progress of a running job.",
        m.LogRequest,
        status=204,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/run/{job}",
        "note_run",
        "node",
        "Store the record of a run, when it starts and when it ends.",
        m.RunRequest,
        status=204,
        may=(404, 409),
    ),
    Route(
        "POST",
        "/workers/{id}/drain",
        "drain",
        "node or admin",
        "Give a worker no more work; its running jobs finish.",
        None,
        WorkerInfo,
        may=(404,),
    ),
    Route(
        "DELETE",
        "/workers/{id}",
        "leave",
        "node or admin",
        "Deregister a worker and release what it holds.",
        status=204,
        may=(404,),
    ),
    Route(
        "GET",
        "/workers",
        "workers",
        "read",
        "List all nodes, newest first.",
        gives=WorkerList,
        query={"status": (str | None, "Only nodes that are idle, busy, draining or offline.")},
    ),
    Route("GET", "/workers/{id}", "worker", "read", "Get one node.", gives=WorkerInfo, may=(404,)),
    Route("POST", "/jobs", "enqueue", "enqueue", "Enqueue a job.", m.EnqueueRequest, m.EnqueueResponse, 201),
    Route("GET", "/jobs/{job}", "job", "read", "Get the state of a job.", gives=JobStatus, may=(404,)),
    Route(
        "POST",
        "/jobs/{job}/cancel",
        "cancel",
        "admin",
        "Cancel a job.",
        None,
        CancelResponse,
        may=(404,),
        query={
            "state": (
                Literal["queued", "running"] | None,
                "Cancel only in this state; otherwise: changed.",
            )
        },
    ),
    Route(
        "GET",
        "/jobs/{job}/log",
        "log",
        "read",
        "Read the log of a job.",
        gives=LogPage,
        may=(404,),
        query={"after": (int, "Only lines after this one.")},
    ),
    Route("GET", "/jobs/{job}/runs", "runs", "read", "List the runs of a job.", gives=RunList, may=(404,)),
    Route(
        "GET",
        "/stats",
        "stats",
        "read",
        "Get the jobs by queue and the nodes by state.",
        gives=StatsResponse,
    ),
    Route("GET", "/health", "health", "nothing", "Liveness probe."),
    Route("GET", "/ready", "ready", "nothing", "Readiness probe: the database answers.", may=(503,)),
    Route("GET", "/metrics", "metrics", "read", "Metrics in the format of Prometheus."),
    Route("GET", "/openapi.json", "openapi", "nothing", "This document."),
)
