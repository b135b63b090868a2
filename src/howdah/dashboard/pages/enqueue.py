"""Enqueue by form, from the task's own signature."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from howdah.dashboard.pages.jobs import parse_time
from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ArgumentError
from howdah.task import Task


class Field(NamedTuple):
    """One argument of the form."""

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
        tasks=sorted(visit.context.app.tasks),
        task=task,
        kind=kind,
        asked=fields_of(task) if task else [],
        about=(task.handler.function.__doc__ or "").strip().split("\n")[0] if task else "",
    )


async def enqueue(visit: DashboardRequest) -> Response:
    """Enqueue one job."""
    kind = visit.field("kind")
    task = _task(visit, kind)
    arguments = dict(arguments_of(visit, task))
    settings = _settings(visit)
    try:
        job = task.using(**settings).job(**arguments) if settings else task.job(**arguments)
    except ArgumentError as error:
        raise RequestError(400, f"{error}.", "Correct the arguments and try again.") from None
    if not visit.confirmed():
        return visit.confirm(f"Enqueue {kind}?", verb="Enqueue", detail=f"One job, to queue {job.queue}.")
    made = await visit.context.enqueue(job)
    result = "is enqueued." if made.fresh else "has this key already; nothing is enqueued."
    return visit.redirect(f"/jobs/{made.id}", f"Job {made.id} {result}")


def fields_of(task: Task[..., Any]) -> list[Field]:
    """Return the fields of the form."""
    handler, asked = task.handler, []
    for name, each in inspect.signature(handler.function).parameters.items():
        if name in handler.arguments.injected.values():
            continue
        type = each.annotation if isinstance(each.annotation, str) else inspect.formatannotation(each.annotation)
        if handler.batch:  # a job has one element of the list
            type = type.partition("[")[2].removesuffix("]") or "any"
        type = "any" if each.annotation is each.empty else type.removeprefix("howdah.")
        plain, required = type in ("str", "Secret[str]", "str | None"), each.default is each.empty
        default = "" if required else _text(each.default, plain)
        asked.append(Field(name, type, plain, type.startswith("Secret"), required, default))
    return asked


def arguments_of(visit: DashboardRequest, task: Task[..., Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the form."""
    given = []
    for field in fields_of(task):
        text = visit.field(f"arg.{field.name}", "")
        if not field.required and text in ("", field.default):
            continue
        if field.plain:
            given.append((field.name, text))
            continue
        try:
            given.append((field.name, msgspec.json.decode(text)))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            shown = "" if field.secret else f": {text[:60]!r}"
            raise RequestError(
                400, f"{field.name} ({field.type}) is not JSON{shown}.", "Texts need quotes there."
            ) from None
    return given


def _settings(visit: DashboardRequest) -> dict[str, Any]:
    settings: dict[str, Any] = {"queue": visit.field("queue", "").strip(), "key": visit.field("key", "").strip()}
    for name in ("priority", "delay"):
        text = visit.field(name, "").strip()
        try:
            settings[name] = (int if name == "priority" else float)(text) if text else ""
        except ValueError:
            raise RequestError(
                400, f"{name} must be a number, got {text[:40]!r}.", "Correct it and try again."
            ) from None
    settings["run_at"] = parse_time("run_at", visit.field("run_at", "").strip()) or ""
    return {name: value for name, value in settings.items() if value != ""}


def _text(default: Any, plain: bool) -> str:
    if plain:
        return default if isinstance(default, str) else ""
    try:
        return msgspec.json.encode(default).decode()
    except (TypeError, msgspec.MsgspecError):
        return ""


def _task(visit: DashboardRequest, kind: str) -> Task[..., Any]:
    task = visit.context.app.tasks.get(kind)
    if task is None:
        raise RequestError(
            404, f"There is no task {kind[:100]!r} here.", "Serve with -a module:app to enqueue its tasks."
        )
    return task


PAGES = [
    DashboardPage("GET", "/enqueue", "all", form),
    DashboardPage("POST", "/enqueue", "all", enqueue),
]
