"""Errors of the HTTP API: status, code, message and the field at fault."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from howdah.remote.messages import ErrorDetail, ErrorResponse

CHALLENGE = {"WWW-Authenticate": "Bearer"}


class RequestRejected(Exception):
    """Raised to answer a request with an error."""

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
        self.detail = ErrorDetail(code=code, message=message, field=field)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the HTTP response."""
        body = msgspec.json.encode(ErrorResponse(error=self.detail))
        return Response(body, self.status, self.headers, media_type="application/json")


def invalid(message: str, field: str | None = None) -> RequestRejected:
    """Return a 400: a value in the request is invalid."""
    return RequestRejected(400, "INVALID", message, field=field)


def unauthorized(message: str) -> RequestRejected:
    """Return a 401: the token is missing, unknown, expired or revoked."""
    return RequestRejected(401, "UNAUTHORIZED", message, headers=CHALLENGE)


def unknown(what: str) -> RequestRejected:
    """Return a 404: there is no such worker or job."""
    return RequestRejected(404, "UNKNOWN", f"there is no {what}")


def stale(message: str) -> RequestRejected:
    """Return a 409: the lease is lost, or a newer claim came first."""
    return RequestRejected(409, "STALE", message)


def locked(message: str) -> RequestRejected:
    """Return a 503: a transaction of the application has locked a row; the client repeats the request."""
    return RequestRejected(503, "UNAVAILABLE", message, headers={"Retry-After": "1"})


def too_many(message: str, wait: float) -> RequestRejected:
    """Return a 429 with ``Retry-After``."""
    return RequestRejected(429, "TOO_MANY_REQUESTS", message, headers={"Retry-After": str(max(1, math.ceil(wait)))})
