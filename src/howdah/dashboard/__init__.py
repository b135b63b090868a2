"""The web dashboard, an ASGI application with server-rendered pages.

``howdah serve`` has one; it can also be mounted in another application.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from howdah.app import Howdah
from howdah.audit import acting_as
from howdah.dashboard.by_loop import DashboardsByLoop, LoopDashboard
from howdah.dashboard.context import PAGE_TIMEOUT
from howdah.dashboard.link_key import LinkKey
from howdah.dashboard.pages import PAGES
from howdah.dashboard.protection import RequestError, check_host, check_origin, with_security_headers
from howdah.dashboard.request import DashboardPage, DashboardRequest, Level, Visitor
from howdah.dashboard.sign_in import LOGIN_PAGES, Access, SignIn, everybody
from howdah.errors import ConfigError, DatabaseUnreachable, HowdahError
from howdah.postgres.database import BROKEN
from howdah.redact import describe

__all__ = ["Dashboard", "Level", "Visitor", "everybody"]

log = logging.getLogger("howdah")

YEAR = 365 * 86400


class Dashboard:
    """Pages about one application. Mount it: ``Mount("/howdah", Dashboard(app, access=who))``.

    Give one of two functions: ``access`` returns the visitor of a request (your own login), ``sign_in`` returns the
    visitor with a password or token, and adds a login page. ``secure``: a proxy in front provides TLS, so cookies
    are for TLS only although requests arrive without it.
    """

    def __init__(
        self,
        app: Howdah,
        *,
        access: Access | None = None,
        sign_in: SignIn | None = None,
        loopback: bool = False,
        secure: bool = False,
        trace_url: str | None = None,
    ) -> None:
        if (access is None) == (sign_in is None):
            raise ConfigError(
                "choose who has access to the dashboard: access=… (a function that takes the request and returns a"
                " Visitor) or sign_in=… (one that takes a password);"
                " howdah.dashboard.everybody() gives read access to all"
            )
        self._parts = DashboardsByLoop(app, sign_in, trace_url, secure)
        self._access = access
        self._loopback = loopback
        """True if there is no sign-in because only this machine has access."""
        pages = [*PAGES, *LOGIN_PAGES] if sign_in is not None else PAGES
        self._app = Starlette(
            routes=[
                Mount("/static", _Static(packages=[("howdah.dashboard", "static")])),
                *(Route(page.path, self._endpoint(page), methods=[page.method]) for page in pages),
            ],
            exception_handlers={404: self._not_found, 405: self._not_found},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def stop(self) -> None:
        """End live streams, so that the server can stop."""
        self._parts.stop()

    async def close(self) -> None:
        """End live streams, and close the connections of the running event loop."""
        await self._parts.close()

    def _endpoint(self, page: DashboardPage) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = DashboardRequest(request, None, None, can_leave=False)
            try:
                if self._loopback:
                    check_host(request)
                check_origin(request)
                if isinstance(self._access, LinkKey) and (entered := self._access.enter(request)) is not None:
                    return with_security_headers(entered)
                parts = request.state.dashboard = await self._here()
                visitor = await self._visitor(request, parts)
                request.state.still_allowed = partial(self._visitor, request, parts)
                visit = DashboardRequest(
                    request, parts.context, visitor, can_leave=parts.login is not None and visitor is not None
                )
                if page.needs != "nothing" and visitor is None:
                    return with_security_headers(self._to_login(visit))
                if page.needs == "all" and not visit.visitor.may_act:
                    raise RequestError(403, "You may look, but not act.", "Sign in with more rights.")
                if page.method == "POST":
                    await visit.read_form()
                with acting_as(visit.by):
                    return with_security_headers(await page.answer(visit))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return with_security_headers(_error_page(visit, error))

        return answer

    async def _here(self) -> LoopDashboard:
        try:
            return await self._parts.here()
        except ConfigError as error:
            raise RequestError(503, "No database.", f"{error}.") from None

    async def _visitor(self, request: Request, parts: LoopDashboard) -> Visitor | None:
        if self._access is not None:
            return await self._access(request)
        assert parts.login is not None
        return await parts.login.visitor(request)

    def _to_login(self, visit: DashboardRequest) -> Response:
        if isinstance(self._access, LinkKey):
            raise RequestError(403, "The dashboard needs its key.", "Open the link that the command printed.")
        if self._access is not None:
            raise RequestError(403, "The dashboard is not open to you.", "Ask its operator.")
        if visit.request.method != "GET" or visit.partial or visit.request.url.path.endswith("/live"):
            raise RequestError(401, "You are not signed in any more.", "Reload the page and sign in.")
        return visit.redirect("/login", to=_path_and_query(visit))

    async def _not_found(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        what = "There is no such page." if status == 404 else "This cannot be done here."
        visit = DashboardRequest(request, None, None, can_leave=False)
        return with_security_headers(_error_page(visit, RequestError(status, what, "Go back to the overview.")))


class _Static(StaticFiles):
    """Static files; their URLs contain a version, so browsers may cache them for ever."""

    def file_response(self, *args: object, **options: object) -> Response:
        """Return a file with security and cache headers."""
        response = super().file_response(*args, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = f"public, max-age={YEAR}, immutable"
        return with_security_headers(response)


def _path_and_query(visit: DashboardRequest) -> str:
    """Return the requested path and query, relative to the dashboard."""
    path = visit.request.url.path.removeprefix(visit.request.scope.get("root_path", ""))
    query = visit.request.url.query
    return path + (f"?{query}" if query else "")


def _error_page(visit: DashboardRequest, error: Exception) -> Response:
    """Return the page for an error."""
    match error:
        case RequestError():
            rejected = error
        case asyncpg.QueryCanceledError():
            rejected = RequestError(
                503, f"The query took longer than {PAGE_TIMEOUT:g} s and was cancelled.", "Narrow the filter."
            )
        case asyncpg.InsufficientPrivilegeError():
            fix = "Grant howdah_worker to the role of this server, if users may do this here."
            rejected = RequestError(403, f"The role of this server may not do that: {error}.", fix)
        case DatabaseUnreachable():
            rejected = RequestError(503, "The database does not answer.", "This page works again as soon as it does.")
        case _ if isinstance(error, BROKEN):
            rejected = RequestError(503, "The database does not answer.", "This page works again as soon as it does.")
        case HowdahError():
            rejected = RequestError(400, str(error))
        case _:
            kind, message, trace = describe(error)
            log.error("dashboard: %s failed (%s: %s)\n%s", visit.request.url.path, kind, message, trace)
            rejected = RequestError(500, "Internal error.", "The log of the server has the details.")
    template = "refused_dialog.html" if visit.partial else "refused.html"
    return visit.page(template, rejected.status, what=rejected.what, fix=rejected.fix, code=rejected.status)
