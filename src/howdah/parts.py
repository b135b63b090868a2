"""Parts of the settings that have a name of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long finished jobs are kept, in seconds; what is not said stays at its default."""

    done: float | None = None
    failed: float | None = None
    logs: float | None = None
    audit: float | None = None


class Serve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a control plane behaves; what is not said stays at its default. Times are in seconds."""

    host: str | None = None
    port: int | None = None
    certificate: str | None = None
    key: str | None = None
    auth: Literal["token", "none"] | None = None
    heartbeat: float | None = None
    offline_after: float | None = None
    rate: float | None = None
    connections: int | None = None
    largest_body: int | None = None
    pool: int | None = None
    dashboard: bool | None = None
    password: str | None = None
    read_password: str | None = None
    trace_url: str | None = None


PARTS: Mapping[str, type[Keep] | type[Serve]] = {"retention": Keep, "serve": Serve}
