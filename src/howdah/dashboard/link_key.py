"""Access to a dashboard without a login: by the link that the command prints, for the user who can read it."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from howdah.dashboard.request import Visitor

PARAMETER = "key"
LIFETIME = 7 * 86400
"""Seconds for which a browser keeps the cookie."""


class LinkKey:
    """A random key in the printed link. The first visit exchanges it for a cookie; without either there is no access.

    A dashboard without a login listens on this machine only, but other users of the machine can connect to it, and
    would act with the rights of the user who started it. The cookie depends on the key alone, so it is still valid
    after a restart of the server with the same key.
    """

    def __init__(self, key: str | None = None) -> None:
        self.key = key or secrets.token_urlsafe(24)

    def link(self, address: str) -> str:
        """Return the link to print."""
        return f"{address}?{PARAMETER}={self.key}"

    async def __call__(self, request: Request) -> Visitor | None:
        """Return the visitor of a request with the cookie."""
        cookie = request.cookies.get(_cookie(request), "")
        return Visitor("everybody", "all") if hmac.compare_digest(cookie.encode(), self._proof().encode()) else None

    def enter(self, request: Request) -> Response | None:
        """Exchange the key in a link for the cookie; the redirect removes it from the address."""
        given = request.query_params.get(PARAMETER, "")
        if request.method != "GET" or not given or not hmac.compare_digest(given.encode(), self.key.encode()):
            return None
        response = RedirectResponse(str(request.url.remove_query_params(PARAMETER)), 303)
        # Lax: a strict cookie would not be sent after a link in another program was opened.
        response.set_cookie(_cookie(request), self._proof(), max_age=LIFETIME, path="/", httponly=True, samesite="lax")
        return response

    def _proof(self) -> str:
        return hmac.new(self.key.encode(), b"howdah dashboard", hashlib.sha256).hexdigest()


def _cookie(request: Request) -> str:
    """Return the name of the cookie: browsers send cookies of one host to all its ports."""
    return f"howdah-key-{request.url.port or 0}"
