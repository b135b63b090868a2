"""OpenAPI: the document, made from the routes and the messages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from howdah.fleet.messages import Refusal
from howdah.fleet.routes import ROUTES, Route
from howdah.version import __version__

ALWAYS = {
    400: "The request says something that cannot be; the field is named.",
    401: "No token, or none that is good.",
    403: "The token is not good for this.",
    413: "The request is too large.",
    429: "Too many requests; see Retry-After.",
    503: "The database does not answer.",
}
SOMETIMES = {404: "There is no such thing.", 409: "It is no longer the worker's, or the claim came after a newer one."}
PLACE = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """The whole of it."""
    types = [each for route in ROUTES for each in (route.takes, route.gives) if each is not None]
    _, components = msgspec.json.schema_components([*types, Refusal], ref_template=PLACE)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Howdah",
            "version": __version__,
            "description": "Work without a database: the control plane of Howdah.",
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
        operation["requestBody"] = {"required": True, "content": _json(route.takes)}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    most = {"id": 2**31 - 1, "job": 2**63 - 1}
    places = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 1, "maximum": most[name]},
        }
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    asked = [
        {"name": name, "in": "query", "required": False, "description": about, "schema": _query(kind)}
        for name, (kind, about) in route.query.items()
    ]
    return places + asked


def _query(kind: Any) -> dict[str, Any]:
    if kind is int:
        return {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
    return {"type": "string", "enum": ["idle", "busy", "draining", "offline"]}


def _responses(route: Route) -> dict[str, Any]:
    said: dict[str, Any] = {str(route.status): {"description": route.summary}}
    if route.gives is not None:
        said[str(route.status)]["content"] = _json(route.gives)
    if route.empty:
        said[str(route.empty)] = {"description": "There is nothing."}
    errors = ALWAYS if route.needs != "nothing" else {503: ALWAYS[503]} if route.may else {}
    for status in (*errors, *(each for each in route.may if each not in errors)):
        about = ALWAYS.get(status) or SOMETIMES[status]
        said[str(status)] = {"description": about, "content": _json(Refusal)}
    return said


def _json(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": PLACE.format(name=kind.__name__)}}}
