"""HTTP client of the control plane, as a worker uses it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec

from howdah.errors import ConfigError, HowdahError
from howdah.loops import wait
from howdah.remote import messages as m

UNCONFIRMED_FOR = 60.0
"""Seconds after a claim without a response in which the control plane may still carry it out."""
WITHOUT_NUMBERS_FOR = 60.0
"""Seconds without claim numbers after a control plane of version 0.1 rejected one; a newer replica may answer next."""
MAX_TOKENS = 10_000


class ClaimNumbers:
    """Numbers the claims of one store, which are made one after the other.

    By the number the control plane recognises a claim that arrives late; by the tokens it finds the leases whose
    response was lost, and releases them.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._last = 0
        self._unconfirmed_until = 0.0
        self._without_numbers_until = 0.0

    def claim(self, limit: int, wait: float, room: Mapping[str, int], held: Collection[int]) -> m.ClaimRequest:
        """Return the next claim; ``held``: the tokens that the worker holds."""
        now = time.monotonic()
        message = m.ClaimRequest(max=limit, wait=wait, store=self._store, room=dict(room))
        if now >= self._without_numbers_until:
            self._last += 1
            message.number = self._last
            if now < self._unconfirmed_until and len(held) <= MAX_TOKENS:
                message.tokens = list(held)
        return message

    def response_lost(self) -> None:
        """Note that a response which may have contained jobs was lost."""
        self._unconfirmed_until = time.monotonic() + UNCONFIRMED_FOR

    def is_late(self, error: BaseException) -> bool:
        """Return whether this claim came after a newer one, as when a proxy repeats a request."""
        return isinstance(error, RejectedByServer) and (error.status, error.code) == (409, "STALE")

    def is_unknown(self, error: BaseException) -> bool:
        """Return whether a control plane of version 0.1 rejected the number; the next claims then have none."""
        old = isinstance(error, RejectedByServer) and error.status == 400 and "unknown field `number`" in str(error)
        if old:
            self._without_numbers_until = time.monotonic() + WITHOUT_NUMBERS_FOR
        return old


MIN_INTERVAL = 0.025
"""Seconds between two claims, or two reports; what happens meanwhile is sent with the next one."""
EMPTY_INTERVAL = 0.25
"""Seconds until the next claim after an empty one."""


class RequestPacer:
    """Spaces requests, so that a worker stays below the rate limit. A single request never waits."""

    def __init__(self) -> None:
        self._next = 0.0

    async def acquire(self, cancelled: asyncio.Event | None = None) -> bool:
        """Wait until the next request may be sent; return false if ``cancelled`` was set meanwhile."""
        now = time.monotonic()
        start = max(now, self._next)
        if start > now and await wait(cancelled or asyncio.Event(), start - now):
            return False
        self._next = start + MIN_INTERVAL
        return True

    def back_off(self) -> None:
        """Wait longer before the next request, since the last one found nothing."""
        self._next = max(self._next, time.monotonic() + EMPTY_INTERVAL)


T = TypeVar("T")
REQUEST_TIMEOUT = 15.0
"""Most seconds until a response, besides the time of a long poll; never above a third of the lease."""


class ControlPlaneUnreachable(HowdahError):
    """The control plane did not respond or is overloaded; the request may have been carried out or not."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """Status of the response, if there was one."""


class UnknownWorker(HowdahError):
    """The control plane does not know this worker (any more); it has to register again."""


class RejectedByServer(HowdahError):
    """The control plane rejected the request; the same request would be rejected again."""

    def __init__(self, message: str, status: int, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """Error code; ``None``: the response came from a proxy, not from the control plane."""


class ControlPlaneClient:
    """Sends the requests of one worker. Belongs to one event loop."""

    def __init__(self, server: str, token: str | None, *, ca: str | None = None) -> None:
        self.server = check_server(server)
        self._http = httpx.AsyncClient(
            base_url=self.server,
            timeout=None,  # each request has one timeout for all of it
            verify=_ssl_context(ca) if self.server.startswith("https:") else False,
            follow_redirects=False,
            trust_env=False,
        )
        self._token = token
        self._credential: str | None = None
        self._timeout = REQUEST_TIMEOUT
        self.node = 0
        self.draining = False
        """True once the control plane answered that this worker has to drain."""

    async def register(self, message: m.RegisterRequest) -> m.RegisterResponse:
        """Register this process; later requests use the credential it gets."""
        made = await self._request("POST", "/workers/register", m.RegisterResponse, message, bearer=self._token)
        if made is None:
            raise ControlPlaneUnreachable(f"the server at {self.server} is not a control plane of this version")
        self.draining = False
        self.adopt(made)
        return made

    def adopt(self, made: m.RegisterResponse) -> None:
        """Use the id and credential of a registration."""
        self.node, self._credential = made.id, made.credential
        self._timeout = max(1.0, min(REQUEST_TIMEOUT, made.lease / 3))

    async def send(self, verb: str, message: Any, gives: type[T], *, wait: float = 0.0) -> T | None:
        """Send a request of the worker, with ``wait`` seconds more for a long poll; ``None``: the response is empty."""
        return await self._as_worker("POST", f"/{verb}", gives, message, wait=wait)

    async def leave(self) -> None:
        """Deregister the worker."""
        await self._as_worker("DELETE", "", m.ReleaseResponse, None)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _as_worker(self, method: str, path: str, gives: type[T], message: Any, *, wait: float = 0.0) -> T | None:
        path = f"/workers/{self.node}{path}"
        try:
            return await self._request(
                method, path, gives, message, bearer=self._credential, timeout=self._timeout + wait
            )
        except RejectedByServer as error:
            if error.code == "UNAUTHORIZED":  # another worker has this id by now
                raise UnknownWorker(str(error)) from None
            raise

    async def _request(
        self,
        method: str,
        path: str,
        gives: type[T],
        message: Any,
        *,
        bearer: str | None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> T | None:
        headers = {"Content-Type": "application/json"}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        content = msgspec.json.encode(message) if message is not None else None
        try:
            async with asyncio.timeout(timeout):
                answer = await self._http.request(method, path, content=content, headers=headers)
        except TimeoutError:
            raise ControlPlaneUnreachable(
                f"the control plane at {self.server} did not answer within {timeout:g} s"
            ) from None
        except httpx.HTTPError as error:
            why = f"{type(error).__name__} {error}".rstrip()
            raise ControlPlaneUnreachable(f"the control plane at {self.server} does not answer: {why}") from None
        if answer.status_code == 204:
            self.draining = self.draining or answer.headers.get("Howdah-Reason") == "draining"
            return None
        if not answer.is_success:
            raise _error_of(answer.status_code, answer.content)
        try:
            return msgspec.json.decode(answer.content, type=gives)
        except msgspec.MsgspecError:
            raise ControlPlaneUnreachable(
                f"the server at {self.server} is not a control plane of this version"
            ) from None


def check_server(server: str) -> str:
    """Return the URL of a control plane without a trailing slash.

    >>> check_server("https://howdah.example.com/")
    'https://howdah.example.com'
    """
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username or parts.query or parts.fragment:
        raise ConfigError("the server is a URL such as https://howdah.example.com; its token is given apart")
    return server.rstrip("/")


def _ssl_context(ca: str | None) -> ssl.SSLContext:
    """Trust the certificate authorities of this machine, or the given one only."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"the authority {ca} cannot be used: {error}") from None


def _error_of(status: int, body: bytes) -> HowdahError:
    try:
        problem = msgspec.json.decode(body, type=m.ErrorResponse).error
        text = f"{problem.code}: {problem.message}" + (f" (field {problem.field})" if problem.field else "")
        code = problem.code
    except msgspec.MsgspecError:  # a response of a proxy
        text, code = f"HTTP {status}", None
    if (status, code) == (404, "UNKNOWN"):
        return UnknownWorker(text)
    if status in (408, 425, 429) or status >= 500:
        return ControlPlaneUnreachable(text, status)
    return RejectedByServer(text, status, code)
