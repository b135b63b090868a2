"""Client: a worker's side of the protocol. One request, one answer, or an error that says which kind it is."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec

from howdah.errors import ConfigError, HowdahError
from howdah.fleet import messages as m

T = TypeVar("T")
PATIENCE = 15.0
"""Seconds an answer may take at most, besides what was asked to be waited; no more than a third of the lease."""


class Unreachable(HowdahError):
    """The control plane did not answer, or not now; it may or may not have heard."""

    def __init__(self, said: str, status: int | None = None) -> None:
        super().__init__(said)
        self.status = status
        """What was answered, if anything was."""


class NotKnown(HowdahError):
    """The control plane does not know this worker (any more): register again."""


class Turned(HowdahError):
    """The control plane refused; trying again is of no use."""

    def __init__(self, said: str, status: int, code: str | None = None) -> None:
        super().__init__(said)
        self.status = status
        self.code = code
        """The reason in one word; ``None``: what answered is no control plane, but a proxy in between."""


class Client:
    """Speaks with a control plane. Belongs to one event loop."""

    def __init__(self, server: str, token: str | None, *, ca: str | None = None) -> None:
        self.server = check_server(server)
        self._http = httpx.AsyncClient(
            base_url=self.server,
            timeout=None,  # each request has one for all of it
            verify=_trusting(ca) if self.server.startswith("https:") else False,
            follow_redirects=False,
            trust_env=False,
        )
        self._token = token
        self._credential: str | None = None
        self._patience = PATIENCE
        self.node = 0
        self.draining = False
        """Whether it was said that there is nothing for this worker, since it is to drain."""

    async def register(self, message: m.Register) -> m.Registered:
        """Announce this process; what follows is said in its name."""
        made = await self._ask("POST", "/workers/register", m.Registered, message, bearer=self._token)
        if made is None:
            raise Unreachable(f"what answers at {self.server} is no control plane of this version")
        self.draining = False
        self.adopt(made)
        return made

    def adopt(self, made: m.Registered) -> None:
        """Speak in the name of this registration."""
        self.node, self._credential = made.id, made.credential
        self._patience = max(1.0, min(PATIENCE, made.lease / 3))

    async def tell(self, verb: str, message: Any, gives: type[T], *, wait: float = 0.0) -> T | None:
        """Say something as the worker, and ``wait`` seconds longer for the answer; ``None``: there is nothing."""
        return await self._as_worker("POST", f"/{verb}", gives, message, wait=wait)

    async def leave(self) -> None:
        """Say goodbye."""
        await self._as_worker("DELETE", "", m.Released, None)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _as_worker(self, method: str, path: str, gives: type[T], message: Any, *, wait: float = 0.0) -> T | None:
        path = f"/workers/{self.node}{path}"
        try:
            return await self._ask(
                method, path, gives, message, bearer=self._credential, patience=self._patience + wait
            )
        except Turned as error:
            if error.code == "UNAUTHORIZED":  # our number is somebody else's by now
                raise NotKnown(str(error)) from None
            raise

    async def _ask(
        self,
        method: str,
        path: str,
        gives: type[T],
        message: Any,
        *,
        bearer: str | None,
        patience: float = PATIENCE,
    ) -> T | None:
        headers = {"Content-Type": "application/json"}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        content = msgspec.json.encode(message) if message is not None else None
        try:
            async with asyncio.timeout(patience):
                answer = await self._http.request(method, path, content=content, headers=headers)
        except TimeoutError:
            raise Unreachable(f"the control plane at {self.server} did not answer within {patience:g} s") from None
        except httpx.HTTPError as error:
            why = f"{type(error).__name__} {error}".rstrip()
            raise Unreachable(f"the control plane at {self.server} does not answer: {why}") from None
        if answer.status_code == 204:
            self.draining = self.draining or answer.headers.get("Howdah-Reason") == "draining"
            return None
        if not answer.is_success:
            raise _refusal(answer.status_code, answer.content)
        try:
            return msgspec.json.decode(answer.content, type=gives)
        except msgspec.MsgspecError:
            raise Unreachable(f"what answers at {self.server} is no control plane of this version") from None


def check_server(server: str) -> str:
    """The URL of a control plane, as it is used.

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


def _trusting(ca: str | None) -> ssl.SSLContext:
    """Whom to believe: those this machine believes, or one authority."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # also what ssl has to say
        raise ConfigError(f"the authority {ca} cannot be used: {error}") from None


def _refusal(status: int, body: bytes) -> HowdahError:
    try:
        problem = msgspec.json.decode(body, type=m.Refusal).error
        said = f"{problem.code}: {problem.message}" + (f" (field {problem.field})" if problem.field else "")
        code = problem.code
    except msgspec.MsgspecError:  # a proxy, which does not know what the control plane knows
        said, code = f"HTTP {status}", None
    if (status, code) == (404, "UNKNOWN"):
        return NotKnown(said)
    if status in (408, 425, 429) or status >= 500:
        return Unreachable(said, status)
    return Turned(said, status, code)
