"""Requests to a sidecar, as JSON. Responses are plain objects without an envelope."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from howdah_agent.program.artifacts import Patterns

Attempt = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")]
"""The caller's name of the attempt, which has a workspace of its own."""
Seconds = Annotated[float, Meta(gt=0, le=86400 * 7)]


class Ask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base class of all requests."""

    attempt: Attempt


class Clone(Ask):
    """Clone a repository into the fresh workspace of an attempt."""

    url: str
    branch: str | None = None
    """Default: the default branch."""


class Execute(Ask):
    """Run the agent with a prompt."""

    prompt: Annotated[str, Meta(min_length=1)]
    timeout: Seconds | None = None


class CommitAndPush(Ask):
    """Commit the changes and, if requested, push them."""

    message: Annotated[str, Meta(min_length=1, max_length=10_000)]
    commit: bool = True
    push: bool = True
    branch: str | None = None
    """Branch to push to; default: the branch that was cloned."""


class Sdlc(Ask):
    """Run a command by its name."""

    command: Annotated[str, Meta(min_length=1, max_length=100)]
    args: Annotated[list[Annotated[str, Meta(max_length=10_000)]], Meta(max_length=100)] = []
    timeout: Seconds | None = None


class Artifacts(Ask):
    """Collect files the program wrote."""

    patterns: Patterns
