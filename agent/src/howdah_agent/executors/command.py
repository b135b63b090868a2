"""Command: a task that runs a program, with arguments from the job."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from howdah.errors import CodedError, ConfigError, coded
from howdah.job import current_job
from howdah.secrets import pointers
from howdah.worker.job_log import job_log
from howdah_agent.executors.classify import EXITS, WORDS, Words, classify, wait_in
from howdah_agent.executors.signature import App, taking
from howdah_agent.executors.template import Template
from howdah_agent.program.run import CannotRun, ProgramResult, run

ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ")
"""Environment variables of the worker that a program receives; others may hold secrets."""

AFTERWARDS = 2.0
"""Seconds after KILL for the last output, and to remove the folder."""


def command(
    app: App,
    name: str,
    words: Sequence[str],
    *,
    takes: Mapping[str, Any] | None = None,
    options: Collection[str] = (),
    environment: Collection[str] = ENVIRONMENT,
    variables: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    grace: float = 3.0,
    keep: int = 64 * 1024,
    exits: Mapping[int, str] = EXITS,
    text: Words = WORDS,
    hold: bool = False,
    **settings: Any,
) -> Any:
    """Make a program a task: ``command(app, "thumbnail", ["convert", "{source}", "-resize", "{width}", "{target}"])``.

    Every ``{name}`` is an argument of the job, text unless ``takes`` has its type (``{"width": int}``). Its output
    goes into the log of the job, and the end of it into the result. It runs in ``folder``, or in a fresh one that is
    removed afterwards, in a process group of its own that gets TERM, and KILL after the ``grace``, when the job is
    cancelled or takes longer than its timeout. ``exits`` and ``text`` map failures to error codes; ``hold``: after
    RATE_LIMITED no node claims this kind for a while. The other parameters are those of ``app.task``.
    """
    template = Template(words, options=options)
    hints = {each: list[str] if each in template.many else str for each in template.names} | dict(takes or {})

    for each, hint in hints.items():
        if pointers(hint):
            raise ConfigError(
                f"argument {each!r} of command {name!r} is a Secret; other users can see the arguments of a process"
            )

    async def work(values: dict[str, Any]) -> dict[str, Any]:
        line = template.fill(values)
        given = given_environment(environment, variables)
        try:
            if folder is not None:
                ended = await _run(line, Path(folder), given, grace, keep, fresh=False)
            else:
                with tempfile.TemporaryDirectory(prefix="howdah-", ignore_cleanup_errors=True) as made:
                    given |= {"HOME": made, "TMPDIR": made}
                    ended = await _run(line, Path(made), given, grace, keep, fresh=True)
        except CannotRun as error:
            raise coded("INVALID_SPEC", str(error)) from None
        if ended.exit_code != 0:
            raise failure(ended, words[0], exits=exits, text=text, hold=hold)
        return {"exit_code": 0, "output": ended.stdout, "duration_ms": round(ended.seconds * 1000)}

    function = taking(hints, work, f"Run {words[0]}.")
    function.ends_within = grace + AFTERWARDS
    return app.task(name=name, **settings)(function)


def given_environment(names: Collection[str], variables: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a program: allowed variables of the worker, its own ones, and those of the job."""
    job = current_job()
    ours = {name: os.environ[name] for name in names if name in os.environ}
    return ours | dict(variables or {}) | {"HOWDAH_JOB": str(job.id), "HOWDAH_ATTEMPT": str(job.attempt)}


async def _run(
    line: list[str], folder: Path, environment: dict[str, str], grace: float, keep: int, *, fresh: bool
) -> ProgramResult:
    return await run(
        line,
        folder=folder,
        environment=environment,
        hear=lambda stream, said: job_log(said, stream=stream),
        grace=grace,
        keep=keep,
        fresh=fresh,
    )


def failure(
    ended: ProgramResult, program: str, *, exits: Mapping[int, str] = EXITS, text: Words = WORDS, hold: bool = False
) -> CodedError:
    """Return the error of a failed program, with its code and the end of its output."""
    code = classify(exit_code=ended.exit_code, stderr=ended.stderr, exits=exits, words=text)
    last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "")
    message = f"{program} ended with {ended.words}" + (f": {last.strip()[:500]}" if last else "")
    return coded(code, message, retry_after=wait_in(ended.stderr), hold=hold)
