"""The dashboard's ASGI application. ``howdah serve`` has one; it can be mounted in another application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

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
from howdah.dashboard import protection as guard
from howdah.dashboard.access import Access, SignIn, Visitor
from howdah.dashboard.context import PATIENCE, DashboardContext
from howdah.dashboard.errors import RequestError
from howdah.dashboard.pages import PAGES
from howdah.dashboard.pages.login import LOGIN, SESSION, SESSION_PLAIN
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ConfigError, DatabaseUnreachable, HowdahError
from howdah.postgres.database import BROKEN
from howdah.redact import describe

log = logging.getLogger("howdah")

YEAR = 365 * 86400


class Dashboard:
    """Pages about one application. Mount it: ``Mount("/howdah", Dashboard(app, access=who))``.

    ``access`` says who asks (your own login); or ``sign_in`` says who has a password, and there is a login page.
    """

    def __init__(
        self,
        app: Howdah,
        *,
        access: Access | None = None,
        sign_in: SignIn | None = None,
        loopback: bool = False,
        trace_url: str | None = None,
    ) -> None:
        if (access is None) == (sign_in is None):
            raise ConfigError(
                "say who may look at the dashboard: access=… (a function that takes the request and returns a Visitor)"
                " or sign_in=… (one that takes a password); howdah.dashboard.everybody() gives read access to all"
            )
        self.site = DashboardContext(app, trace_url)
        self.sign_in = sign_in
        self._access = access
        self._loopback = loopback
        """True if there is no sign-in because only this machine has access."""
        self._throttle = guard.Throttle()
        pages = [*PAGES, *LOGIN] if sign_in is not None else PAGES
        self._app = Starlette(
            routes=[
                Mount("/static", _Static(packages=[("howdah.dashboard", "static")])),
                *(Route(page.path, self._endpoint(page), methods=[page.method]) for page in pages),
            ],
            exception_handlers={404: self._missing, 405: self._missing},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def stop(self) -> None:
        """End live streams, so that the server can stop."""
        self.site.hub.stop()

    async def close(self) -> None:
        """End live streams, and close the connections."""
        await self.site.close()

    def _endpoint(self, page: DashboardPage) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = DashboardRequest(request, self.site, None, can_leave=False)
            try:
                if self._loopback:
                    guard.check_host(request)
                guard.check_origin(request)
                visitor = await self._who(request)
                visit = DashboardRequest(
                    request, self.site, visitor, can_leave=self.sign_in is not None and visitor is not None
                )
                if page.needs != "nothing" and visitor is None:
                    return guard.sealed(self._strangers(visit))
                if page.needs == "all" and not visit.visitor.may_act:
                    raise RequestError(403, "You may look, but not act.", "Sign in with more rights.")
                if page.method == "POST":
                    await visit.read_form()
                request.state.dashboard = self
                with acting_as(visit.by):
                    return guard.sealed(await page.answer(visit))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return guard.sealed(_refuse(visit, error))

        return answer

    async def _who(self, request: Request) -> Visitor | None:
        if self._access is not None:
            return await self._access(request)
        id = request.cookies.get(SESSION) or request.cookies.get(SESSION_PLAIN)
        return await self.site.logins.find(id) if id else None

    def _strangers(self, visit: DashboardRequest) -> Response:
        if self.sign_in is None:
            raise RequestError(403, "The dashboard is not open to you.", "Ask its operator.")
        if visit.request.method != "GET" or visit.partial or visit.request.url.path.endswith("/live"):
            raise RequestError(401, "You are not signed in any more.", "Reload the page and sign in.")
        return visit.go("/login", to=_within(visit))

    async def _missing(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        what = "There is no such page." if status == 404 else "This cannot be done here."
        visit = DashboardRequest(request, self.site, None, can_leave=False)
        return guard.sealed(_refuse(visit, RequestError(status, what, "Go back to the overview.")))

    @property
    def throttle(self) -> guard.Throttle:
        """Addresses with too many failed sign-ins."""
        return self._throttle


class _Static(StaticFiles):
    """Files that never change under their address, which holds their version."""

    def file_response(self, *args: object, **options: object) -> Response:
        """With headers of its own."""
        response = super().file_response(*args, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = f"public, max-age={YEAR}, immutable"
        return guard.sealed(response)


def _within(visit: DashboardRequest) -> str:
    """The address asked for, within the dashboard."""
    path = visit.request.url.path.removeprefix(visit.request.scope.get("root_path", ""))
    query = visit.request.url.query
    return path + (f"?{query}" if query else "")


def _refuse(visit: DashboardRequest, error: Exception) -> Response:
    """Return the page for an error."""
    match error:
        case RequestError():
            refused = error
        case asyncpg.QueryCanceledError():
            refused = RequestError(
                503, f"This took longer than {PATIENCE:g} s and was stopped.", "Ask for less at once."
            )
        case asyncpg.InsufficientPrivilegeError():
            fix = "Grant howdah_worker to the role of this server if people may do so here."
            refused = RequestError(403, f"The role of this server may not do that: {error}.", fix)
        case DatabaseUnreachable():
            refused = RequestError(503, "The database does not answer.", "This page works again as soon as it does.")
        case _ if isinstance(error, BROKEN):
            refused = RequestError(503, "The database does not answer.", "This page works again as soon as it does.")
        case HowdahError():
            refused = RequestError(400, str(error))
        case _:
            kind, message, trace = describe(error)
            log.error("dashboard: %s failed (%s: %s)\n%s", visit.request.url.path, kind, message, trace)
            refused = RequestError(500, "Something is wrong on this side.", "The log of the server says what.")
    template = "refused_dialog.html" if visit.partial else "refused.html"
    return visit.page(template, refused.status, what=refused.what, fix=refused.fix, code=refused.status)
