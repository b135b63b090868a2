"""Security headers of responses, checks of origin and host, and the error of a rejected request."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from howdah.errors import HowdahError

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


class RequestError(HowdahError):
    """Shown as a page of its own: what is wrong, then what to do."""

    def __init__(self, status: int, what: str, fix: str = "") -> None:
        super().__init__(f"{what} {fix}".strip())
        self.status = status
        self.what = what
        self.fix = fix


def with_security_headers(response: Response) -> Response:
    """Add the headers that restrict what a browser does with a response."""
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


def network_of(address: str) -> str:
    """Return the network that is limited as one client: a single IPv4 address, or an IPv6 /64, which one host owns.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1"), network_of("2001:db8::2"), network_of("")
    ('192.0.2.7', '2001:db8::/64', '2001:db8::/64', '')
    """
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
