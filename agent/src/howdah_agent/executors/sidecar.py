"""Sidecar client: a task whose work is done over HTTP by a service on the same machine."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec

from howdah.errors import ERROR_CODES, CodedError, ConfigError, HowdahError, coded
from howdah.job import current_job
from howdah.outcome import Snooze
from howdah.worker.job_log import job_log, progress
from howdah_agent.executors.classify import EXITS, WORDS, Words, classify, wait_in
from howdah_agent.executors.signature import App, taking

SILENCE = 60.0
"""Read timeout in seconds: a sidecar that sends nothing for this long counts as hung."""
LONGEST_LINE = 4 * 1024 * 1024
NDJSON = "application/x-ndjson"


class SidecarGone(HowdahError):
    """The sidecar does not answer, or its response ended early."""


class SidecarBusy(HowdahError):
    """The sidecar has no free slot."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Companion:
    """Client of an HTTP service on this machine."""

    def __init__(
        self, url: str, token: str | None, *, exits: Mapping[int, str] = EXITS, words: Words = WORDS, hold: bool = False
    ) -> None:
        host = urlsplit(url).hostname or ""
        if not url.startswith(("http://", "https://")) or not _is_loopback(host):
            raise ConfigError(f"the URL of a sidecar must be on this machine, got {url!r}; write http://127.0.0.1:8079")
        self._url = url.rstrip("/")
        self._token = token
        self._exits = exits
        self._words = words
        self._hold = hold

    def __repr__(self) -> str:
        return f"Companion({self._url!r})"

    async def ask(self, path: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request; streamed lines go into the log of the job, and the last object is returned."""
        async with self._asked("POST", path, message) as answer:
            last: Any = None
            async for last in _objects(answer):
                if isinstance(last, dict) and "line" in last:
                    stream = last.get("stream")
                    job_log(str(last["line"]), stream=stream if stream in ("stdout", "stderr") else "log")
                elif isinstance(last, dict) and "progress" in last:
                    progress(float(last["progress"]), last.get("note"))
        if not isinstance(last, dict) or "line" in last or "progress" in last:
            raise SidecarGone("the response of the sidecar ended without a result")
        if last.get("success", True) is not True:
            raise self.failure(last)
        return last

    async def forget(self, path: str) -> None:
        """Release a resource of the sidecar; errors are ignored."""
        try:
            async with self._asked("DELETE", path, None, patience=5.0):
                pass
        except (HowdahError, CodedError):
            pass

    def failure(self, said: Mapping[str, Any]) -> Exception:
        """Return the error for a response that reports a failure."""
        stderr, exit_code = str(said.get("stderr") or ""), said.get("exit_code")
        known = said.get("error_code")
        if known == "STOPPED":
            return SidecarGone("the sidecar stopped the work")
        if known not in ERROR_CODES:
            known = classify(
                exit_code=exit_code if isinstance(exit_code, int) else None,
                stderr=stderr,
                exits=self._exits,
                words=self._words,
            )
        last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
        words = str(said.get("error") or "the work failed")
        message = f"{words}: {last[:500]}" if last and last not in words else words
        return coded(known, message, retry_after=wait_in(stderr), hold=self._hold)

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, message: Mapping[str, Any] | None, *, patience: float = SILENCE
    ) -> AsyncIterator[httpx.Response]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        content = None if message is None else msgspec.json.encode(message)
        try:
            async with (
                httpx.AsyncClient(timeout=patience, trust_env=False, follow_redirects=False) as http,
                http.stream(method, self._url + path, content=content, headers=headers) as answer,
            ):
                if not answer.is_success:
                    raise self._refusal(answer, await answer.aread())
                yield answer
        except httpx.HTTPError as error:
            raise SidecarGone(f"the sidecar does not answer: {type(error).__name__} {error}".rstrip()) from None

    def _refusal(self, answer: httpx.Response, body: bytes) -> Exception:
        try:
            said = msgspec.json.decode(body)
        except msgspec.MsgspecError:
            said = {}
        said = said if isinstance(said, dict) else {}
        after = answer.headers.get("retry-after", "")
        seconds = float(after) if after.isdecimal() else None
        message = str(said.get("error") or f"the sidecar answered HTTP {answer.status_code}")
        if said.get("error_code") in ("BUSY", "DRAINING"):
            return SidecarBusy(message, seconds or 5.0)
        if answer.status_code >= 500 and answer.status_code != 504:
            return SidecarGone(message)
        known = said.get("error_code")
        code = known if known in ERROR_CODES else classify(status=answer.status_code)
        return coded(code, message, retry_after=seconds, hold=self._hold)


def sidecar(
    app: App,
    name: str,
    url: str,
    *,
    token: str | None = None,
    takes: Mapping[str, Any] | None = None,
    hold: bool = False,
    **settings: Any,
) -> Any:
    """Register a task that a service on this machine runs: ``sidecar(app, "render", "http://127.0.0.1:9000/render")``.

    It is sent ``{"job": …, "attempt": …, "token": …, "args": {…}}`` and answers with a JSON object, the result, or
    line by line (``application/x-ndjson``): ``{"stream": "stdout", "line": …}`` goes into the log of the job,
    ``{"progress": 0.5, "note": …}`` reports progress, and the last object is the result; one with
    ``"success": false`` is a failure. The HTTP status decides the error code. When the job is cancelled, the
    connection is closed. The other parameters are those of ``app.task``.
    """
    where = urlsplit(url)
    companion = Companion(f"{where.scheme}://{where.netloc}", token, hold=hold)
    path = where.path + (f"?{where.query}" if where.query else "")

    async def work(values: dict[str, Any]) -> Any:
        job = current_job()
        message = {"job": job.id, "attempt": job.attempt, "token": job.token, "args": values}
        try:
            return await companion.ask(path, message)
        except SidecarBusy as busy:
            return Snooze(busy.seconds)

    return app.task(name=name, **settings)(taking(dict(takes or {}), work, f"Call the sidecar at {companion!r}."))


async def _objects(answer: httpx.Response) -> AsyncIterator[Any]:
    """Yield the JSON objects of a response as they arrive."""
    if not answer.headers.get("content-type", "").startswith(NDJSON):
        yield _decoded(await answer.aread())
        return
    rest = b""
    async for chunk in answer.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise SidecarGone("the sidecar sends a line that is too long")
        for line in lines:
            if line.strip():
                yield _decoded(line)
    if rest.strip():
        yield _decoded(rest)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:
        raise SidecarGone("the response of the sidecar is not JSON") from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
