"""HTTP application of the control plane: routing, request bodies, and errors as status and JSON."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import asyncpg
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from howdah.audit import Actor, acting_as
from howdah.control_plane.auth import Authenticator, Caller
from howdah.control_plane.errors import RequestRejected, invalid, unknown
from howdah.control_plane.jobs_api import JobsApi
from howdah.control_plane.openapi import document
from howdah.control_plane.routes import ROUTES, Route
from howdah.control_plane.work_api import WorkApi
from howdah.control_plane.workers_api import WorkersApi
from howdah.dashboard.protection import RequestError as CrossSiteRejected
from howdah.dashboard.protection import check_host, check_origin
from howdah.errors import DatabaseUnreachable, HowdahError, KeyHeld
from howdah.postgres.database import BROKEN
from howdah.redact import describe

log = logging.getLogger("howdah")

T = TypeVar("T")

PATH_SUFFIX = re.compile(r" - at `\$\.?(.*)`$")
FIELD_SUFFIX = re.compile(r" field `([^`]+)`$")
UNREACHABLE: tuple[type[BaseException], ...] = (
    *BROKEN,
    DatabaseUnreachable,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
    asyncpg.exceptions.InvalidCatalogNameError,
    asyncpg.exceptions.ObjectNotInPrerequisiteStateError,
)
UNAVAILABLE = "the database does not answer; try again"
CLOSE = {"Connection": "close"}
SECURITY_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
"""Sent with every response."""


class HttpApi:
    """The Starlette application (``app``) of a control plane."""

    def __init__(
        self,
        auth: Authenticator,
        workers: WorkersApi,
        work: WorkApi,
        jobs: JobsApi,
        *,
        largest_body: int,
        ready: Callable[[], Awaitable[str | None]],
        metrics: Callable[[], bytes],
    ) -> None:
        self._auth = auth
        self._workers = workers
        self._work = work
        self._jobs = jobs
        self._largest = largest_body
        self._ready = ready
        self._metrics = metrics
        self._openapi = msgspec.json.encode(document())
        self.app = Starlette(
            routes=[
                StarletteRoute(
                    "/workers/register", _not_allowed, methods=["GET", "DELETE"]
                ),  # "register" is not the id of a worker
                *(StarletteRoute(route.path, self._endpoint(route), methods=[route.method]) for route in ROUTES),
            ],
            exception_handlers={404: _not_found, 405: _not_found},
        )
        self.app.router.redirect_slashes = False  # the target of a redirect would come from the Host header

    def _endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return _with_security_headers(await self._answer(route, request))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return _with_security_headers(_rejection(route, error).response())

        return answer

    async def _answer(self, route: Route, request: Request) -> Response:
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            # A proxy may use the other header and see two requests where this server sees one (request smuggling).
            raise RequestRejected(
                400, "INVALID", "a body has a Content-Length or a Transfer-Encoding, not both", headers=CLOSE
            )
        if not self._auth.guarded and route.needs != "nothing":
            _check_same_site(request)
        id, job = _number(request, "id", 2**31 - 1), _number(request, "job", 2**63 - 1)
        address = request.client.host if request.client else ""
        caller = await self._auth.authenticate(route.needs, request.headers.get("authorization"), id, address)
        body = await self._body(route, request) if route.takes else None
        with acting_as(Actor(caller.audit_name, "api", address)):
            result = await self._call(route, request, caller, id, job, body)
        if isinstance(result, Response):
            return result
        if result is None:
            return Response(status_code=route.empty or route.status)
        return Response(msgspec.json.encode(result), route.status, media_type="application/json")

    async def _call(self, route: Route, request: Request, caller: Caller, id: Any, job: Any, body: Any) -> Any:
        workers, work, jobs, node = self._workers, self._work, self._jobs, caller.node
        match route.verb:
            case "register":
                return await workers.register(caller, body)
            case "claim":
                assert node is not None
                with self._auth.open_claim(node.id):
                    claimed = await _while_connected(request, work.claim(node, body))
                if claimed is None and (now := await self._auth.node(node.id)).leaving:
                    if now.gone:
                        raise unknown(f"worker {node.id} any more; register again")
                    return Response(status_code=204, headers={"Howdah-Reason": "draining"})
                return claimed
            case "heartbeat":
                assert node is not None
                return await workers.heartbeat(node, body)
            case "ack" | "release":
                return await getattr(work, route.verb)(node, body)
            case "complete" | "fail" | "say" | "note_run":
                return await getattr(work, route.verb)(node, job, body)
            case "drain":
                return await workers.drain(caller, id)
            case "leave" | "worker":
                return await getattr(workers, route.verb)(caller, id)
            case "workers":
                return await workers.workers(caller, request.query_params.get("status"))
            case "enqueue":
                return await jobs.enqueue(caller, body)
            case "job":
                return await jobs.job(caller, job)
            case "cancel":
                return await jobs.cancel(caller, job, request.query_params.get("state"))
            case "log":
                return await jobs.log(caller, job, _after(request))
            case "runs":
                return await jobs.runs(caller, job)
            case "stats":
                return await jobs.stats(caller)
            case "ready":
                if reason := await self._ready():
                    raise RequestRejected(503, "NOT_READY", reason)
                return Response("ready\n", media_type="text/plain")
            case "metrics":
                if caller.queues is not None:
                    raise RequestRejected(
                        403, "FORBIDDEN", "metrics cover all queues, and the token is valid for some only"
                    )
                return Response(self._metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")
            case "openapi":
                return Response(self._openapi, media_type="application/json")
        return Response("alive\n", media_type="text/plain")

    async def _body(self, route: Route, request: Request) -> Any:
        data = bytearray()
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._largest:
            raise self._too_large()
        async for chunk in request.stream():
            if len(data) + len(chunk) > self._largest:
                raise self._too_large()
            data += chunk
        try:
            data.decode()  # msgspec does not decode values that are kept as raw JSON
            return msgspec.json.decode(bytes(data) or route.default_body, type=route.takes)
        except msgspec.ValidationError as error:
            raise _invalid_field(str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"this is not JSON: {error}") from None

    def _too_large(self) -> RequestRejected:
        # The connection is closed: the unread rest of the body must not be read as the next request.
        return RequestRejected(413, "TOO_LARGE", f"a request may have {self._largest:,} bytes", headers=CLOSE)


def _check_same_site(request: Request) -> None:
    """Reject cross-site requests of a browser on this machine, where no token protects the API."""
    try:
        check_host(request)
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            check_origin(request, always=True)
    except CrossSiteRejected as error:
        raise RequestRejected(403, "FORBIDDEN", str(error)) from None


def _invalid_field(text: str) -> RequestRejected:
    """Convert a validation error of msgspec, with the field named."""
    path, text = PATH_SUFFIX.search(text), PATH_SUFFIX.sub("", text)
    field = FIELD_SUFFIX.search(text)
    return invalid(text, ".".join(each[1] for each in (path, field) if each) or None)


def _rejection(route: Route, error: Exception) -> RequestRejected:
    """Convert an exception to the error that the client gets."""
    match error:
        case RequestRejected():
            return error
        case asyncpg.DataError():
            return invalid(f"this cannot be stored: {error}")
        case asyncpg.InterfaceError() if isinstance(error, ValueError):
            return invalid("this cannot be stored: a value is not of the type of its column")
        case _ if isinstance(error, UNREACHABLE):
            return RequestRejected(503, "UNAVAILABLE", UNAVAILABLE, headers={"Retry-After": "1"})
        case KeyHeld():
            return RequestRejected(503, "UNAVAILABLE", str(error), headers={"Retry-After": "1"})
        case HowdahError():
            return invalid(str(error))
    kind, message, trace = describe(error)
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        log.error("%s %s failed: %s; docs/howto/deploy.md lists the roles", route.method, route.path, message)
        return RequestRejected(500, "INTERNAL", "the role of this server may not do that; its log says what it lacks")
    log.error("%s %s failed (%s: %s)\n%s", route.method, route.path, kind, message, trace)
    return RequestRejected(500, "INTERNAL", "internal error; the log of the control plane has the details")


def _with_security_headers(response: Response) -> Response:
    response.headers.update(SECURITY_HEADERS)
    return response


async def _while_connected(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """Await an answer while the client is connected: jobs claimed for a lost connection would wait for their lease."""
    answering = asyncio.create_task(answer)
    leaving = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _not_allowed(request: Request) -> Response:
    raise HTTPException(405, headers={"Allow": "POST"})


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    code = "NOT_FOUND" if status == 404 else "METHOD_NOT_ALLOWED"
    headers = getattr(error, "headers", None)
    rejected = RequestRejected(status, code, f"there is no {request.method} {request.url.path}", headers=headers)
    return _with_security_headers(rejected.response())


def _number(request: Request, name: str, most: int) -> int | None:
    text = request.path_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text) or not 1 <= int(text) <= most:
        raise invalid(f"{name} in the path must be a number from 1 to {most}, got {text!r}", name)
    return int(text)


def _after(request: Request) -> int:
    text = request.query_params.get("after", "0")
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > 2**63 - 1:
        raise invalid(f"after must be a number from 0 on, got {text!r}", "after")
    return int(text)
