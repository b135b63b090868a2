"""OpenAPI document of the control plane, generated from the route table and the messages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from howdah.control_plane.routes import ROUTES, Route
from howdah.remote.messages import ErrorResponse
from howdah.version import __version__

ALWAYS = {
    400: "A value in the request is invalid; the field is named.",
    401: "The token is missing, unknown, expired or revoked.",
    403: "The token lacks the scope or the queue.",
    413: "The request is too large.",
    429: "Too many requests; see Retry-After.",
    503: "The database does not answer.",
}
SOMETIMES = {404: "There is no such worker or job.", 409: "The lease is lost, or the claim came after a newer one."}
REFERENCE = "#/components/schemas/{name}"


SCHEMA_NAMES = {
    "RegisterRequest": "Register",
    "RegisterResponse": "Registered",
    "HeldJob": "Held",
    "HeartbeatRequest": "Heartbeat",
    "RenewalResult": "Fate",
    "HeartbeatResponse": "Beaten",
    "ClaimRequest": "Claim",
    "ClaimedJob": "Claimed",
    "ClaimResponse": "Claims",
    "AttemptReport": "Report",
    "AckRequest": "Ack",
    "RecordedOutcome": "Settled",
    "AckResponse": "Acked",
    "ReleaseRequest": "Release",
    "ReleaseResponse": "Released",
    "CompleteRequest": "Complete",
    "FailRequest": "Fail",
    "FinishResponse": "Ended",
    "LogRequest": "LogLines",
    "RunRequest": "RunNote",
    "EnqueueRequest": "Enqueue",
    "EnqueueResponse": "Enqueued",
    "ErrorDetail": "Problem",
    "ErrorResponse": "Refusal",
    "RunInfo": "RunRecord",
    "WorkerInfo": "Worker",
    "WorkerList": "Workers",
    "CancelResponse": "CancelResult",
    "LogLine": "Line",
    "LogPage": "Lines",
    "RunList": "Runs",
    "StatsResponse": "Stats",
}
"""Names of schemas in the OpenAPI document, by class. Clients generate code from them, so they stay as they are."""


def document() -> dict[str, Any]:
    """Return the document."""
    types = [each for route in ROUTES for each in (route.takes, route.gives) if each is not None]
    _, components = msgspec.json.schema_components([*types, ErrorResponse], ref_template=REFERENCE)
    components = _with_schema_names(components)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Howdah",
            "version": __version__,
            "description": "The control plane of Howdah, for workers without a database.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.verb,
        "summary": route.summary,
        "responses": _responses(route),
        "parameters": _parameters(route),
        "security": [] if route.needs == "nothing" else [{"token": []}],
    }
    if route.takes is not None:
        operation["requestBody"] = {"required": not route.default_body, "content": _json(route.takes)}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    most = {"id": 2**31 - 1, "job": 2**63 - 1}
    path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 1, "maximum": most[name]},
        }
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    query = [
        {"name": name, "in": "query", "required": False, "description": about, "schema": _query(kind)}
        for name, (kind, about) in route.query.items()
    ]
    return path + query


def _query(kind: Any) -> dict[str, Any]:
    if kind is int:
        return {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
    return {"type": "string", "enum": ["idle", "busy", "draining", "offline"]}


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {str(route.status): {"description": route.summary}}
    if route.gives is not None:
        responses[str(route.status)]["content"] = _json(route.gives)
    if route.empty:
        responses[str(route.empty)] = {"description": "Nothing to return."}
    errors = ALWAYS if route.needs != "nothing" else {503: ALWAYS[503]} if route.may else {}
    for status in (*errors, *(each for each in route.may if each not in errors)):
        about = ALWAYS.get(status) or SOMETIMES[status]
        responses[str(status)] = {"description": about, "content": _json(ErrorResponse)}
    return responses


def _schema_name(name: str) -> str:
    return SCHEMA_NAMES.get(name, name)


def _with_schema_names(schema: Any) -> Any:
    """Return a JSON schema in which components, references and titles have the names of the document."""
    if isinstance(schema, list):
        return [_with_schema_names(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = {}
    for key, value in schema.items():
        if key == "$ref":
            prefix, _, name = value.rpartition("/")
            named[key] = f"{prefix}/{_schema_name(name)}"
        elif key == "title":
            named[key] = _schema_name(value)
        else:
            named[_schema_name(key)] = _with_schema_names(value)
    return named


def _json(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REFERENCE.format(name=_schema_name(kind.__name__))}}}
