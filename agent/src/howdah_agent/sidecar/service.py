"""HTTP service of a sidecar: plain JSON requests and responses; output is streamed line by line."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from howdah_agent.program.artifacts import collect
from howdah_agent.program.run import CannotRun, run
from howdah_agent.sidecar import messages as m
from howdah_agent.sidecar.git import Git, GitFailed
from howdah_agent.sidecar.options import SidecarOptions
from howdah_agent.sidecar.origin import Forbidden, check_branch, check_origin
from howdah_agent.sidecar.stream import Say, Stream, while_connected
from howdah_agent.sidecar.workspace import Workspace, WorkspaceRejected, Workspaces

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


class Service:
    """The Starlette application of a sidecar."""

    def __init__(self, options: SidecarOptions, workspaces: Workspaces) -> None:
        self._options = options
        self._workspaces = workspaces
        self._token = f"Bearer {options.token}".encode()
        self.app = Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/execute", self._guarded(self._execute), methods=["POST"]),
                Route("/git/clone", self._guarded(self._clone), methods=["POST"]),
                Route("/git/commit-and-push", self._guarded(self._commit_and_push), methods=["POST"]),
                Route("/sdlc", self._guarded(self._sdlc), methods=["POST"]),
                Route("/artifacts", self._guarded(self._artifacts), methods=["POST"]),
                Route("/workspaces/{attempt}", self._guarded(self._discard), methods=["DELETE"]),
            ]
        )

    # ---------------------------------------------------------------- authentication and limits

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: Request) -> Response:
            try:
                self._admit(request)
                return await endpoint(request)
            except WorkspaceRejected as refused:
                headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
                return _json({"error": str(refused), "error_code": refused.code}, refused.status, headers)
            except ClientDisconnect:
                return Response(status_code=499)

        return answer

    def _admit(self, request: Request) -> None:
        shown = request.headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(shown, self._token):
            raise WorkspaceRejected(401, "UNAUTHORIZED", "send the token of the sidecar: `Authorization: Bearer …`")

    async def _read(self, request: Request, kind: type[T]) -> T:
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > self._options.largest_body:
                raise WorkspaceRejected(413, "TOO_LARGE", f"a request may have {self._options.largest_body:,} bytes")
        try:
            return msgspec.json.decode(bytes(data), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WorkspaceRejected(400, "INVALID_SPEC", str(error)) from None

    # ---------------------------------------------------------------- requests

    async def _health(self, _request: Request) -> Response:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        status = "draining" if self._workspaces.draining else "ok"
        facts = {"status": status, "timestamp": now, "work_dir": self._options.folder}
        return _json(facts | {"attempts": len(self._workspaces), "slots": self._options.slots})

    async def _clone(self, request: Request) -> Response:
        ask = await self._read(request, m.Clone)
        try:
            origin = check_origin(ask.url, self._options.allow)
            branch = check_branch(ask.branch) if ask.branch is not None else None
        except Forbidden as error:
            raise WorkspaceRejected(403, "INVALID_SPEC", str(error)) from None
        workspace = self._workspaces.open(ask.attempt, fresh=True)

        async def work() -> Response:
            began = time.monotonic()
            with self._workspaces.at_work(workspace):
                async with asyncio.timeout(self._options.timeout):
                    head = await Git(workspace, self._options).clone(origin, branch)
            facts = {"success": True, "cloned": True, "commit_sha": head, "branch": workspace.branch}
            return _json(facts | {"duration_ms": _since(began)})

        return await self._with_git(request, work())

    async def _commit_and_push(self, request: Request) -> Response:
        ask = await self._read(request, m.CommitAndPush)
        workspace = self._workspaces.known(ask.attempt)
        try:
            branch = check_branch(ask.branch if ask.branch is not None else workspace.branch or "")
        except Forbidden as error:
            raise WorkspaceRejected(400, "INVALID_SPEC", str(error)) from None

        async def work() -> Response:
            began = time.monotonic()
            git = Git(workspace, self._options)
            with self._workspaces.at_work(workspace):
                async with asyncio.timeout(self._options.timeout):
                    head = await git.commit(ask.message) if ask.commit else workspace.head
                    changed = await git.changed()
                    if ask.push:
                        head = await git.pull_and_push(branch)
            facts = {"success": True, "commit_sha": head, "files_changed": changed, "pushed": ask.push}
            return _json(facts | {"branch": branch, "duration_ms": _since(began)})

        return await self._with_git(request, work())

    async def _with_git(self, request: Request, work: Awaitable[Response]) -> Response:
        try:
            answer: Response = await while_connected(request.receive, work)
        except GitFailed as error:
            stderr = error.ended.stderr[-self._options.keep :] if error.ended else ""
            code = error.ended.exit_code if error.ended else None
            return _json({"success": False, "error": str(error), "exit_code": code, "stderr": stderr})
        except TimeoutError:
            words = f"git took longer than {self._options.timeout:g} s"
            return _json({"success": False, "error": words, "error_code": "TIMEOUT"})
        return answer

    async def _execute(self, request: Request) -> Response:
        ask = await self._read(request, m.Execute)
        if not self._options.agent:
            raise WorkspaceRejected(400, "INVALID_SPEC", "this sidecar has no agent; start it with --agent")
        workspace = self._workspaces.open(ask.attempt)
        return self._run(workspace, self._options.agent, ask.prompt.encode("utf-8", "replace"), ask.timeout)

    async def _sdlc(self, request: Request) -> Response:
        ask = await self._read(request, m.Sdlc)
        words = self._options.commands.get(ask.command)
        if words is None:
            known = ", ".join(sorted(self._options.commands)) or "none"
            raise WorkspaceRejected(
                403, "INVALID_SPEC", f"command {ask.command!r} is not on the list; there is: {known}"
            )
        for argument in ask.args:
            if "\0" in argument or (argument.startswith("-") and not self._options.dashes):
                raise WorkspaceRejected(403, "INVALID_SPEC", f"argument {argument!r} would be an option, or is no text")
        workspace = self._workspaces.open(ask.attempt)
        return self._run(workspace, [*words, *ask.args], None, ask.timeout)

    async def _artifacts(self, request: Request) -> Response:
        ask = await self._read(request, m.Artifacts)
        workspace = self._workspaces.known(ask.attempt)
        began = time.monotonic()
        with self._workspaces.at_work(workspace):
            try:
                found = await asyncio.to_thread(collect, workspace.repository, ask.patterns)
            except OSError as error:  # the program removed the folder it was given, or put a link in its place
                return _json({"success": False, "error": f"the workspace cannot be read: {error.strerror}"})
        return _json({"success": True, **msgspec.to_builtins(found), "duration_ms": _since(began)})

    async def _discard(self, request: Request) -> Response:
        self._workspaces.discard(request.path_params["attempt"])
        return Response(status_code=204)

    # ---------------------------------------------------------------- running

    def _run(
        self, workspace: Workspace, command: Sequence[str], stdin: bytes | None, longest: float | None
    ) -> Response:
        if workspace.busy is not None:
            raise WorkspaceRejected(409, "CONFLICT", f"attempt {workspace.attempt} is at work already")
        seconds = min(longest or self._options.timeout, self._options.timeout)

        async def work(say: Say) -> dict[str, Any]:
            began = time.monotonic()
            with self._workspaces.at_work(workspace):
                try:
                    async with asyncio.timeout(seconds):
                        ended = await run(
                            command,
                            folder=workspace.repository,
                            environment=self._environment(workspace),
                            stdin=stdin,
                            hear=lambda stream, line: say({"stream": stream, "line": line}),
                            grace=self._options.kill_after,
                            keep=self._options.keep,
                        )
                except TimeoutError:
                    words = f"{command[0]} took longer than {seconds:g} s"
                    return {"success": False, "error": words, "error_code": "TIMEOUT", "duration_ms": _since(began)}
                except CannotRun as error:
                    return {"success": False, "error": str(error), "error_code": "INVALID_SPEC"}
            facts = {"success": ended.exit_code == 0, "exit_code": ended.exit_code, "output": ended.stdout}
            words = "" if ended.exit_code == 0 else f"{command[0]} ended with {ended.words}"
            return facts | {"stderr": ended.stderr, "error": words or None, "duration_ms": _since(began)}

        return Stream(work)

    def _environment(self, workspace: Workspace) -> dict[str, str]:
        ours = {name: os.environ[name] for name in self._options.environment if name in os.environ}
        return (
            {"HOME": str(workspace.home), "TMPDIR": str(workspace.home)} | ours | {"HOWDAH_ATTEMPT": workspace.attempt}
        )


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")
