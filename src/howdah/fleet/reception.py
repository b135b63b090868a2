"""Reception: who may look at the dashboard of a control plane, by a token of the API or a password."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from howdah.app import Howdah
from howdah.dashboard.access import Level, Visitor, everybody
from howdah.dashboard.dashboard import Dashboard
from howdah.fleet.door import Door
from howdah.fleet.options import ServeOptions
from howdah.fleet.refusal import Refused
from howdah.fleet.tokens import is_token

PATH = "/dashboard"


class Reception:
    """Lets people in."""

    def __init__(self, door: Door, options: ServeOptions) -> None:
        self._door = door
        self._passwords: list[tuple[Level, str | None]] = [("all", options.password), ("read", options.read_password)]

    async def sign_in(self, secret: str) -> Visitor | None:
        """Whoever has this password or token; a token that is good for some queues only shows too much elsewhere."""
        for level, password in self._passwords:
            if password and hmac.compare_digest(password.encode(), secret.encode("utf-8", "surrogatepass")):
                return Visitor(f"password ({level})", level)
        if not is_token(secret, "api"):
            return None
        try:
            caller = await self._door.token(secret)
        except Refused:
            return None
        if caller.queues is not None or not caller.may("read"):
            return None
        return Visitor(caller.title, "all" if caller.may("admin") else "read", caller.token)


def dashboard(app: Howdah, door: Door, options: ServeOptions) -> Dashboard:
    """The dashboard of a control plane; where nobody needs a token, only this machine is let in."""
    if options.auth == "none":
        return Dashboard(app, access=everybody("all"), loopback=True, trace_url=options.trace_url)
    return Dashboard(app, sign_in=Reception(door, options).sign_in, trace_url=options.trace_url)


async def to_dashboard(_request: Request) -> Response:
    """Whoever comes to the front door is shown the way."""
    return RedirectResponse(f"{PATH}/", 303)
