"""HTTP: requests in, answers out. Everything that can go wrong on the way has a status and a reason."""

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

from howdah.audit import By, acting_as
from howdah.dashboard.guard import check_host, check_origin
from howdah.dashboard.refusal import Refused as Elsewhere
from howdah.errors import DatabaseUnreachable, HowdahError, KeyHeld
from howdah.fleet.clerk import Clerk
from howdah.fleet.door import Caller, Door
from howdah.fleet.openapi import document
from howdah.fleet.plane import Plane
from howdah.fleet.refusal import Refused, bad, unknown
from howdah.fleet.routes import ROUTES, Route
from howdah.pg.database import BROKEN
from howdah.scrub import describe

log = logging.getLogger("howdah")

T = TypeVar("T")

PLACE = re.compile(r" - at `\$\.?(.*)`$")
FIELD = re.compile(r" field `([^`]+)`$")
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
SEALED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
"""On every answer: it is for whoever asked, and is what it says it is."""


class Api:
    """The Starlette application of a control plane."""

    def __init__(
        self,
        door: Door,
        plane: Plane,
        clerk: Clerk,
        *,
        largest_body: int,
        ready: Callable[[], Awaitable[str | None]],
        metrics: Callable[[], bytes],
    ) -> None:
        self._door = door
        self._plane = plane
        self._clerk = clerk
        self._largest = largest_body
        self._ready = ready
        self._metrics = metrics
        self._openapi = msgspec.json.encode(document())
        self.app = Starlette(
            routes=[
                StarletteRoute("/workers/register", _not_allowed, methods=["GET", "DELETE"]),  # it is no worker's id
                *(StarletteRoute(route.path, self._endpoint(route), methods=[route.method]) for route in ROUTES),
            ],
            exception_handlers={404: _not_found, 405: _not_found},
        )
        self.app.router.redirect_slashes = False  # a redirect goes where the Host header says

    def _endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return _sealed(await self._answer(route, request))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return _sealed(_refusal(route, error).response())

        return answer

    async def _answer(self, route: Route, request: Request) -> Response:
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            # a proxy may believe the other one, and see two requests where we see one
            raise Refused(400, "INVALID", "a body has a length or comes in chunks, not both", headers=CLOSE)
        if not self._door.guarded and route.needs != "nothing":
            _from_here(request)
        id, job = _number(request, "id", 2**31 - 1), _number(request, "job", 2**63 - 1)
        address = request.client.host if request.client else ""
        caller = await self._door.admit(route.needs, request.headers.get("authorization"), id, address)
        body = await self._body(route, request) if route.takes else None
        with acting_as(By(caller.who, "api", address)):
            said = await self._ask(route, request, caller, id, job, body)
        if isinstance(said, Response):
            return said
        if said is None:
            return Response(status_code=route.empty or route.status)
        return Response(msgspec.json.encode(said), route.status, media_type="application/json")

    async def _ask(self, route: Route, request: Request, caller: Caller, id: Any, job: Any, body: Any) -> Any:
        plane, clerk, node = self._plane, self._clerk, caller.node
        match route.verb:
            case "register":
                return await plane.register(caller, body)
            case "claim":
                assert node is not None
                with self._door.waiting(node.id):
                    jobs = await _while_connected(request, plane.claim(node, body))
                if jobs is None and (now := await self._door.node(node.id)).leaving:
                    if now.gone:
                        raise unknown(f"worker {node.id} any more; register again")
                    return Response(status_code=204, headers={"Howdah-Reason": "draining"})
                return jobs
            case "heartbeat" | "ack" | "release":
                return await getattr(plane, route.verb)(node, body)
            case "complete" | "fail" | "say" | "note_run":
                return await getattr(plane, route.verb)(node, job, body)
            case "drain":
                return await plane.drain(id, itself=node is not None)
            case "leave" | "worker":
                return await getattr(plane, route.verb)(id)
            case "workers":
                return await plane.workers(request.query_params.get("status"))
            case "enqueue":
                return await clerk.enqueue(caller, body)
            case "job":
                return await clerk.job(caller, job)
            case "cancel":
                return await clerk.cancel(caller, job, request.query_params.get("state"))
            case "log":
                return await clerk.log(caller, job, _after(request))
            case "runs":
                return await clerk.runs(caller, job)
            case "stats":
                return await clerk.stats(caller)
            case "ready":
                if reason := await self._ready():
                    raise Refused(503, "NOT_READY", reason)
                return Response("ready\n", media_type="text/plain")
            case "metrics":
                if caller.queues is not None:
                    raise Refused(403, "FORBIDDEN", "metrics tell of every queue, and the token is good for some only")
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
            data.decode()  # what is kept as it came is not looked into below
            return msgspec.json.decode(bytes(data), type=route.takes)
        except msgspec.ValidationError as error:
            raise _misfit(str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise bad(f"this is not JSON: {error}") from None

    def _too_large(self) -> Refused:
        # what is left unread must not be taken for the next request
        return Refused(413, "TOO_LARGE", f"a request may have {self._largest:,} bytes", headers=CLOSE)


def _from_here(request: Request) -> None:
    """Where nobody needs a token, no page of another site acts through the browser of whoever is at this machine."""
    try:
        check_host(request)
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            check_origin(request, always=True)
    except Elsewhere as error:
        raise Refused(403, "FORBIDDEN", str(error)) from None


def _misfit(text: str) -> Refused:
    """What does not fit the message, with the field named."""
    place, text = PLACE.search(text), PLACE.sub("", text)
    field = FIELD.search(text)
    return bad(text, ".".join(each[1] for each in (place, field) if each) or None)


def _refusal(route: Route, error: Exception) -> Refused:
    """An error as whoever asked hears it."""
    match error:
        case Refused():
            return error
        case asyncpg.DataError():
            return bad(f"this cannot be stored: {error}")
        case asyncpg.InterfaceError() if isinstance(error, ValueError):
            return bad("this cannot be stored: a value is not of the type of its column")
        case _ if isinstance(error, UNREACHABLE):
            return Refused(503, "UNAVAILABLE", UNAVAILABLE, headers={"Retry-After": "1"})
        case KeyHeld():
            return Refused(503, "UNAVAILABLE", str(error), headers={"Retry-After": "1"})
        case HowdahError():
            return bad(str(error))
    kind, message, trace = describe(error)
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        log.error("%s %s failed: %s; docs/howto/deploy.md lists the roles", route.method, route.path, message)
        return Refused(500, "INTERNAL", "the role of this server may not do that; its log says what it lacks")
    log.error("%s %s failed (%s: %s)\n%s", route.method, route.path, kind, message, trace)
    return Refused(500, "INTERNAL", "something is wrong on this side; its log says what")


def _sealed(response: Response) -> Response:
    response.headers.update(SEALED)
    return response


async def _while_connected(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """Wait for an answer as long as somebody wants it: what is claimed for nobody would be lost for a while."""
    asking = asyncio.create_task(answer)
    leaving = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            raise ClientDisconnect
        return asking.result()
    finally:
        asking.cancel()
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
    refused = Refused(status, code, f"there is no {request.method} {request.url.path}", headers=headers)
    return _sealed(refused.response())


def _number(request: Request, name: str, most: int) -> int | None:
    text = request.path_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text) or not 1 <= int(text) <= most:
        raise bad(f"{name} in the path must be a number from 1 to {most}, got {text!r}", name)
    return int(text)


def _after(request: Request) -> int:
    text = request.query_params.get("after", "0")
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > 2**63 - 1:
        raise bad(f"after must be a number from 0 on, got {text!r}", "after")
    return int(text)
