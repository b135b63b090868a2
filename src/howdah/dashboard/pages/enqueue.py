"""Enqueue by form, from the task's own signature."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from howdah.dashboard.errors import RequestError
from howdah.dashboard.job_filter import moment
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ArgumentError
from howdah.task import Task


class Field(NamedTuple):
    """One argument, as it is asked for."""

    name: str
    type: str
    """As the task says it."""
    plain: bool
    """True if it is text as it is; else it is JSON."""
    secret: bool
    required: bool
    default: str


async def form(visit: DashboardRequest) -> Response:
    """The task is chosen first, then its arguments are asked for."""
    kind = visit.param("kind")
    task = _task(visit, kind) if kind else None
    return visit.page(
        "enqueue.html",
        tasks=sorted(visit.site.app.tasks),
        task=task,
        kind=kind,
        asked=ask(task) if task else [],
        about=(task.handler.function.__doc__ or "").strip().split("\n")[0] if task else "",
    )


async def enqueue(visit: DashboardRequest) -> Response:
    """Enqueue one job."""
    kind = visit.field("kind")
    task = _task(visit, kind)
    arguments = dict(read(visit, task))
    how = _how(visit)
    try:
        job = task.using(**how).job(**arguments) if how else task.job(**arguments)
    except ArgumentError as error:
        raise RequestError(400, f"{error}.", "Correct the arguments and try again.") from None
    if not visit.sure():
        return visit.ask(f"Enqueue {kind}?", verb="Enqueue", detail=f"One job, to queue {job.queue}.")
    made = await visit.site.enqueue(job)
    said = f"Job {made.id} is enqueued." if made.fresh else f"Job {made.id} has this key already; nothing is enqueued."
    return visit.go(f"/jobs/{made.id}", said)


def ask(task: Task[..., Any]) -> list[Field]:
    """Return the fields of the form."""
    handler, asked = task.handler, []
    for name, each in inspect.signature(handler.function).parameters.items():
        if name in handler.arguments.injected.values():
            continue
        type = each.annotation if isinstance(each.annotation, str) else inspect.formatannotation(each.annotation)
        type = "any" if each.annotation is each.empty else type.removeprefix("howdah.")
        plain, required = type in ("str", "Secret[str]", "str | None"), each.default is each.empty
        default = "" if required else _text(each.default, plain)
        asked.append(Field(name, type, plain, type.startswith("Secret"), required, default))
    return asked


def read(visit: DashboardRequest, task: Task[..., Any]) -> list[tuple[str, Any]]:
    """The arguments that were given."""
    given = []
    for field in ask(task):
        text = visit.field(f"arg.{field.name}", "")
        if not field.required and text in ("", field.default):
            continue
        if field.plain:
            given.append((field.name, text))
            continue
        try:
            given.append((field.name, msgspec.json.decode(text)))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            said = "" if field.secret else f": {text[:60]!r}"
            raise RequestError(
                400, f"{field.name} ({field.type}) is not JSON{said}.", "Texts need quotes there."
            ) from None
    return given


def _how(visit: DashboardRequest) -> dict[str, Any]:
    said: dict[str, Any] = {"queue": visit.field("queue", "").strip(), "key": visit.field("key", "").strip()}
    for name in ("priority", "delay"):
        text = visit.field(name, "").strip()
        try:
            said[name] = (int if name == "priority" else float)(text) if text else ""
        except ValueError:
            raise RequestError(
                400, f"{name} must be a number, got {text[:40]!r}.", "Correct it and try again."
            ) from None
    said["run_at"] = moment("run_at", visit.field("run_at", "").strip()) or ""
    return {name: value for name, value in said.items() if value != ""}


def _text(default: Any, plain: bool) -> str:
    if plain:
        return default if isinstance(default, str) else ""
    try:
        return msgspec.json.encode(default).decode()
    except (TypeError, msgspec.MsgspecError):
        return ""


def _task(visit: DashboardRequest, kind: str) -> Task[..., Any]:
    task = visit.site.app.tasks.get(kind)
    if task is None:
        raise RequestError(
            404, f"There is no task {kind[:100]!r} here.", "Serve with -a module:app to enqueue its tasks."
        )
    return task


PAGES = [
    DashboardPage("GET", "/enqueue", "all", form),
    DashboardPage("POST", "/enqueue", "all", enqueue),
]
