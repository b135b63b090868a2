"""What a sidecar is asked, as JSON. Answers are plain objects: there is no envelope around them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from howdah.program.artifacts import Patterns

Attempt = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")]
"""What the caller calls the attempt: a workspace is made for it, and for it alone."""
Seconds = Annotated[float, Meta(gt=0, le=86400 * 7)]


class Ask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What all of them have in common."""

    attempt: Attempt


class Clone(Ask):
    """Clone a repository into the fresh workspace of an attempt."""

    url: str
    branch: str | None = None
    """Left out: the default one."""


class Execute(Ask):
    """Run the agent with a prompt."""

    prompt: Annotated[str, Meta(min_length=1)]
    timeout: Seconds | None = None


class CommitAndPush(Ask):
    """Commit what changed and, if asked, push it."""

    message: Annotated[str, Meta(min_length=1, max_length=10_000)]
    commit: bool = True
    push: bool = True
    branch: str | None = None
    """Where to push; left out: the branch that was cloned."""


class Sdlc(Ask):
    """Run a command by its name."""

    command: Annotated[str, Meta(min_length=1, max_length=100)]
    args: Annotated[list[Annotated[str, Meta(max_length=10_000)]], Meta(max_length=100)] = []
    timeout: Seconds | None = None


class Artifacts(Ask):
    """Collect files the program left."""

    patterns: Patterns
