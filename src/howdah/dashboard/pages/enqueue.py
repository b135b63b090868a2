"""Enqueue by form, from the task's own signature."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from howdah.dashboard.choice import moment
from howdah.dashboard.refusal import Refused
from howdah.dashboard.visit import Page, Visit
from howdah.errors import ArgumentError
from howdah.task import Task


class Field(NamedTuple):
    """One argument, as it is asked for."""

    name: str
    type: str
    """As the task says it."""
    plain: bool
    """Whether it is text as it is; else it is JSON."""
    secret: bool
    required: bool
    default: str


async def form(visit: Visit) -> Response:
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


async def enqueue(visit: Visit) -> Response:
    """Enqueue one job."""
    kind = visit.field("kind")
    task = _task(visit, kind)
    arguments = dict(read(visit, task))
    how = _how(visit)
    try:
        job = task.using(**how).job(**arguments) if how else task.job(**arguments)
    except ArgumentError as error:
        raise Refused(400, f"{error}.", "Correct the arguments and try again.") from None
    if not visit.sure():
        return visit.ask(f"Enqueue {kind}?", verb="Enqueue", detail=f"One job, to queue {job.queue}.")
    made = await visit.site.enqueue(job)
    said = f"Job {made.id} is enqueued." if made.fresh else f"Job {made.id} has this key already; nothing is enqueued."
    return visit.go(f"/jobs/{made.id}", said)


def ask(task: Task[..., Any]) -> list[Field]:
    """What to ask for."""
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


def read(visit: Visit, task: Task[..., Any]) -> list[tuple[str, Any]]:
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
            raise Refused(400, f"{field.name} ({field.type}) is not JSON{said}.", "Texts need quotes there.") from None
    return given


def _how(visit: Visit) -> dict[str, Any]:
    said: dict[str, Any] = {"queue": visit.field("queue", "").strip(), "key": visit.field("key", "").strip()}
    for name in ("priority", "delay"):
        text = visit.field(name, "").strip()
        try:
            said[name] = (int if name == "priority" else float)(text) if text else ""
        except ValueError:
            raise Refused(400, f"{name} must be a number, got {text[:40]!r}.", "Correct it and try again.") from None
    said["run_at"] = moment("run_at", visit.field("run_at", "").strip()) or ""
    return {name: value for name, value in said.items() if value != ""}


def _text(default: Any, plain: bool) -> str:
    if plain:
        return default if isinstance(default, str) else ""
    try:
        return msgspec.json.encode(default).decode()
    except (TypeError, msgspec.MsgspecError):
        return ""


def _task(visit: Visit, kind: str) -> Task[..., Any]:
    task = visit.site.app.tasks.get(kind)
    if task is None:
        raise Refused(404, f"There is no task {kind[:100]!r} here.", "Serve with -a module:app to enqueue its tasks.")
    return task


PAGES = [
    Page("GET", "/enqueue", "all", form),
    Page("POST", "/enqueue", "all", enqueue),
]
