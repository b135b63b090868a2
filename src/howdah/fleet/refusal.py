"""Refusal: an error of the API, as whoever asked hears it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from howdah.fleet.messages import Problem, Refusal


class Refused(Exception):
    """The request is not carried out."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(code=code, message=message, field=field)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """What is sent."""
        body = msgspec.json.encode(Refusal(error=self.problem))
        return Response(body, self.status, self.headers, media_type="application/json")


def bad(message: str, field: str | None = None) -> Refused:
    """400: the request says something that cannot be."""
    return Refused(400, "INVALID", message, field=field)


def unknown(what: str) -> Refused:
    """404: there is no such thing."""
    return Refused(404, "UNKNOWN", f"there is no {what}")


def stale(message: str) -> Refused:
    """409: it is no longer the worker's."""
    return Refused(409, "STALE", message)


def locked(message: str) -> Refused:
    """503: a transaction of the user's has locked a row; say it again."""
    return Refused(503, "UNAVAILABLE", message, headers={"Retry-After": "1"})


def too_many(message: str, wait: float) -> Refused:
    """429: not so fast."""
    return Refused(429, "TOO_MANY_REQUESTS", message, headers={"Retry-After": str(max(1, math.ceil(wait)))})
