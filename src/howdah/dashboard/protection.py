"""Security headers of every response, and checks of origin, host and failed logins."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from howdah.dashboard.errors import RequestError

LARGEST_FORM = 64 * 1024
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
SAFE = frozenset({"GET", "HEAD"})
TRIES = 10
"""Wrong passwords of one address in a minute, until it must wait."""
MINUTE = 60.0
MOST_KNOWN = 10_000


def sealed(response: Response) -> Response:
    """The answer with all that keeps a browser from doing more with it than show it."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def check_origin(request: Request, *, always: bool = False) -> None:
    """Reject cross-site requests, and requests with neither ``Origin`` nor ``Sec-Fetch-Site``."""
    if request.method in SAFE and not always:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise RequestError(403, "This was sent from another site.", "Open the dashboard itself and try again.")
    if origin is None and site is None:
        raise RequestError(
            403, "The request does not say where it comes from.", "Use a browser, or the API with a token."
        )
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise RequestError(403, "This was sent from another site.", "Open the dashboard itself and try again.")


def check_host(request: Request) -> None:
    """Without a login accept only requests to this machine's own names: prevents DNS rebinding."""
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if host == "localhost":
        return
    try:
        known = ipaddress.ip_address(host).is_loopback
    except ValueError:
        known = False
    if not known:
        raise RequestError(
            403, f"There is no login here, and {host[:100]!r} is not this machine.", "Use 127.0.0.1 or localhost."
        )


class Throttle:
    """Rate limiter of wrong passwords, per address."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Reject an address with too many wrong passwords."""
        since, wrong = self._wrong.get(address, (0.0, 0))
        left = MINUTE - (time.monotonic() - since)
        if wrong >= TRIES and left > 0:
            raise RequestError(429, "Too many wrong passwords.", f"Try again in {left:.0f} s.")

    def note(self, address: str) -> None:
        """Count a wrong password."""
        now = time.monotonic()
        since, wrong = self._wrong.pop(address, (now, 0))
        if now - since > MINUTE:
            since, wrong = now, 0
        self._wrong[address] = (since, wrong + 1)
        if len(self._wrong) > MOST_KNOWN:
            self._wrong.popitem(last=False)
