"""Builds: the tasks ``build`` (runs an agent with a prompt) and ``sdlc`` (runs a command), in a clone."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from howdah.errors import LeaseLost, code_of, coded, retries
from howdah.job import Job, current_job
from howdah.outcome import Snooze
from howdah.redact import scrub
from howdah.secrets import marks, masked
from howdah.store import RunRecord
from howdah.worker.job_log import job_log, progress, record_run
from howdah_agent.executors.callback import Callbacks
from howdah_agent.executors.classify import EXITS, WORDS, Words
from howdah_agent.executors.sidecar import Companion, SidecarBusy, SidecarGone
from howdah_agent.executors.signature import App
from howdah_agent.program.artifacts import Artifact, Found, Patterns

PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
BEGIN_TRIES = 5
LAST_NOTE = 1.0
"""Seconds a stopped run has to finish its record."""


class BuildResult(msgspec.Struct, kw_only=True):
    """Result of a build or a command."""

    success: bool
    output: str = ""
    """End of the output."""
    error: str | None = None
    error_code: str | None = None
    commit_sha: str | None = None
    files_changed: list[str] = []
    duration_ms: int = 0
    artifacts: list[Artifact] = []


class Builds(NamedTuple):
    """The two tasks."""

    build: Any
    sdlc: Any


def install(
    app: App,
    *,
    url: str,
    token: str | None,
    templates: Mapping[str, str] | None = None,
    callbacks: Sequence[str] = (),
    private_callbacks: bool = False,
    exits: Mapping[int, str] = EXITS,
    words: Words = WORDS,
    hold: bool = False,
    **settings: Any,
) -> Builds:
    """Give an app the tasks ``build`` and ``sdlc``, executed by the sidecar at ``url``.

    ``templates``: prompts by name, with ``{{prompt}}`` and ``{{variables}}`` in them. ``callbacks``: allow-list of
    URL prefixes for results; hosts with a private address are allowed only with ``private_callbacks``.
    ``exits`` and ``words`` map failures to error codes; ``hold``: after RATE_LIMITED no node claims the kind for a
    while. The other parameters are those of ``app.task``, for both tasks.
    """
    may_call = Callbacks(callbacks, private=private_callbacks)
    companion = Companion(url, token, exits=exits, words=words, hold=hold)
    prompts = dict(templates or {})
    settings = {"queue": "builds", "timeout": 900.0, **settings}

    async def build(
        prompt: Annotated[str, Meta(min_length=1)],
        template: str | None = None,
        variables: dict[str, str] | None = None,
        auto_commit: bool = False,
        auto_push: bool = False,
        git_clone_url: str | None = None,
        callback_url: str | None = None,
        artifacts: Patterns | None = None,
    ) -> Any:
        """Run the agent with a prompt, in a clone if a URL is given; commit and push its changes if requested."""

        async def work(run: _Run) -> BuildResult:
            text = filled(prompt, template, variables or {}, prompts)
            if (auto_commit or auto_push) and git_clone_url is None:
                raise coded("INVALID_SPEC", "commit needs a repository; set git_clone_url")
            await run.clone(git_clone_url)
            said = await run.ask("/execute", prompt=text)
            await run.collect(artifacts)
            if auto_commit or auto_push:
                await run.keep(prompt, commit=auto_commit, push=auto_push)
            return run.result(said)

        return await _Run(companion, callback_url, may_call).go(work)

    async def sdlc(
        command: Annotated[str, Meta(min_length=1, max_length=100)],
        args: list[str] | None = None,
        git_clone_url: str | None = None,
        callback_url: str | None = None,
        artifacts: Patterns | None = None,
    ) -> Any:
        """Run one of the sidecar's commands, in a clone if a URL is given, and push its changes."""

        async def work(run: _Run) -> BuildResult:
            await run.clone(git_clone_url)
            said = await run.ask("/sdlc", command=command, args=args or [])
            await run.collect(artifacts)
            if git_clone_url is not None:
                await run.keep(" ".join([command, *(args or [])]), commit=True, push=True)
            return run.result(said)

        return await _Run(companion, callback_url, may_call).go(work)

    return Builds(app.task(name="build", **settings)(build), app.task(name="sdlc", **settings)(sdlc))


def filled(prompt: str, template: str | None, variables: Mapping[str, str], templates: Mapping[str, str]) -> str:
    """Return the prompt with its template and variables filled in.

    >>> filled("a shop in {{lang}}", "plain", {"lang": "Python"}, {"plain": "Build {{prompt}}."})
    'Build a shop in Python.'
    """
    if template is not None and template not in templates:
        raise coded("INVALID_SPEC", f"there is no template {template!r}")

    def fill(text: str, values: Mapping[str, str]) -> str:
        missing = [name for name in PLACE.findall(text) if name not in values]
        if missing:
            raise coded("INVALID_SPEC", f"the prompt names {{{{{missing[0]}}}}}, and there is no such variable")
        return PLACE.sub(lambda place: values[place[1]], text)

    text = fill(prompt, variables) if variables or template is None else prompt
    if template is None:
        return text
    return fill(templates[template], {**variables, "prompt": text})


class _Run:
    """One run: its record is started and always finished, and its workspace is removed."""

    def __init__(self, companion: Companion, callback: str | None, callbacks: Callbacks) -> None:
        self._companion = companion
        self._callback = callback
        self._callbacks = callbacks
        self._job = current_job()
        self._attempt = f"{self._job.id}-{self._job.attempt}-{self._job.token}"
        self._began = time.monotonic()
        self._kept: dict[str, Any] = {}
        self._artifacts: list[Artifact] = []

    async def go(self, work: Callable[[_Run], Awaitable[BuildResult]]) -> Any:
        """Do the work. An error is recorded with its code, and raised."""
        job = self._job
        await self._begin()
        try:
            if self._callback is not None and not self._callbacks.may(self._callback):
                raise coded("INVALID_SPEC", "callback_url is not on the allow-list of callbacks")
            result = await work(self)
        except SidecarBusy as busy:
            await self._end("failed", BuildResult(success=False, error=str(busy), error_code="BUSY"))
            return Snooze(busy.seconds)
        except asyncio.CancelledError:
            await self._stopped()
            raise
        except Exception as error:
            code = code_of(error)
            failed = BuildResult(success=False, error=scrub(str(error))[:2000], error_code=code)
            await self._end("failed", failed)
            if job.is_last_attempt or not retries(code, job.attempt):
                await self._call_back("failed", failed)
            raise
        finally:
            await asyncio.shield(self._companion.forget(f"/workspaces/{self._attempt}"))
        await self._end("done", result)
        await self._call_back("completed", result)
        return msgspec.to_builtins(result)

    async def clone(self, url: str | None) -> None:
        """Clone the repository, if one is given."""
        if url is not None:
            progress(0.1, "clone")
            await self.ask("/git/clone", url=url)

    async def ask(self, path: str, **message: Any) -> dict[str, Any]:
        """Request one step from the sidecar."""
        if path in ("/execute", "/sdlc"):
            progress(0.3, path[1:])
            if self._job.timeout is not None:
                message["timeout"] = max(1.0, self._job.timeout - (time.monotonic() - self._began))
        return await self._companion.ask(path, {"attempt": self._attempt, **message})

    async def collect(self, patterns: list[str] | None) -> None:
        """Collect artifacts from the workspace, if any are requested."""
        if not patterns:
            return
        progress(0.8, "artifacts")
        said = await self.ask("/artifacts", patterns=patterns)
        try:
            found = msgspec.convert(said, Found)
        except msgspec.ValidationError as error:
            raise SidecarGone(f"the sidecar returned invalid artifacts: {error}") from None
        for line in found.left_out:
            job_log(f"left out of the artifacts: {line}")
        self._artifacts = found.artifacts

    async def keep(self, what: str, *, commit: bool, push: bool) -> None:
        """Commit and push the changes."""
        progress(0.9, "commit and push" if push else "commit")
        first = what.strip().splitlines()[0][:60] if what.strip() else "no words"
        trailer = f"Howdah-Job: {self._job.id}\nHowdah-Attempt: {self._job.attempt}"
        message = f"{self._job.kind}: {first}\n\n{trailer}\n".replace("\0", " ")
        self._kept = await self.ask("/git/commit-and-push", message=message, commit=commit, push=push)

    def result(self, said: Mapping[str, Any]) -> BuildResult:
        """Return the result."""
        return BuildResult(
            success=True,
            output=str(said.get("output") or ""),
            commit_sha=self._kept.get("commit_sha"),
            files_changed=list(self._kept.get("files_changed") or ()),
            artifacts=self._artifacts,
        )

    async def _begin(self) -> None:
        """Start the record, which every run needs; retries while the control plane does not answer."""
        for left in reversed(range(BEGIN_TRIES)):
            try:
                await record_run(RunRecord(state="running", spec=_spec(self._job)))
            except LeaseLost:
                raise
            except Exception:
                if not left:
                    raise
                await asyncio.sleep(1)
            else:
                return

    async def _end(self, state: Any, result: BuildResult) -> None:
        result.duration_ms = round((time.monotonic() - self._began) * 1000)
        data = msgspec.json.encode(result).replace(b"\\u0000", b"\\ufffd")
        try:
            await record_run(RunRecord(state=state, code=result.error_code, result=data))
        except LeaseLost:
            pass  # another worker has the job by now; the record says that this run was lost
        except Exception as error:
            job_log(f"the record of this run could not be finished: {error}")

    async def _stopped(self) -> None:
        """Finish the record of a cancelled run within the time that is left."""
        job = self._job
        late = job.timeout is not None and time.monotonic() - self._began >= job.timeout - 0.1
        words = f"it ran longer than its timeout of {job.timeout:g} s" if late else "it was stopped"
        result = BuildResult(success=False, error=words, error_code="TIMEOUT" if late else "CANCELLED")
        try:
            async with asyncio.timeout(LAST_NOTE):
                await self._end("failed", result)
        except TimeoutError:
            pass

    async def _call_back(self, status: str, result: BuildResult) -> None:
        if self._callback is not None:
            await self._callbacks.post(self._callback, msgspec.json.encode(_callback(self._job, status, result)))


def _spec(job: Job) -> bytes:
    """Return the description of the work, without secrets."""
    secrets = marks(job.meta_json)
    return msgspec.json.encode(masked(job.args, secrets)) if secrets else job.payload


def _callback(job: Job, status: str, result: BuildResult) -> dict[str, Any]:
    meta = job.meta
    return {"task_id": job.id, "project_id": meta.get("project_id"), "status": status, "result": result}
