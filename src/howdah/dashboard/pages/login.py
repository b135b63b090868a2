"""Sign in and out."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.dashboard.sessions import LASTS

SESSION = "__Host-howdah"
SESSION_PLAIN = "howdah-session"
"""Where there is no TLS, a browser takes no cookie that is only for TLS."""


async def form(visit: DashboardRequest) -> Response:
    """The page to sign in on."""
    return visit.page("login.html", to=_inside(visit.param("to")), wrong=False)


async def sign_in(visit: DashboardRequest) -> Response:
    """Check a password or token."""
    dashboard = visit.request.state.dashboard
    dashboard.throttle.check(visit.address)
    to = _inside(visit.field("to", ""))
    visitor = await dashboard.sign_in(visit.field("secret"))
    if visitor is None:
        dashboard.throttle.note(visit.address)
        return visit.page("login.html", 401, to=to, wrong=True)
    id = await visit.site.logins.begin(visitor)
    response = visit.go(to)
    secure = visit.request.url.scheme == "https"
    response.set_cookie(
        SESSION if secure else SESSION_PLAIN,
        id,
        max_age=int(LASTS),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return response


async def sign_out(visit: DashboardRequest) -> Response:
    """End the session."""
    for name in (SESSION, SESSION_PLAIN):
        if id := visit.request.cookies.get(name):
            await visit.site.logins.end(id)
    response = visit.go("/login")
    response.delete_cookie(SESSION, path="/", secure=True, httponly=True, samesite="strict")
    response.delete_cookie(SESSION_PLAIN, path="/", httponly=True, samesite="strict")
    return response


def _inside(to: str) -> str:
    """Return a path within the dashboard, or its first page: a login must not redirect to another site."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and "\n" not in to else "/"


LOGIN = [
    DashboardPage("GET", "/login", "nothing", form),
    DashboardPage("POST", "/login", "nothing", sign_in),
    DashboardPage("POST", "/logout", "nothing", sign_out),
]
