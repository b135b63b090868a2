"""Said: webhooks as the settings file and the environment say them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import httpx2 as httpx
import msgspec

from howdah.errors import ConfigError
from howdah.notices.webhook import Webhook

FIELDS = tuple(field.name for field in fields(Webhook))
LISTS = ("on", "queues", "kinds", "secret")
WORDS = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


def webhooks_of(said: Any, environ: Mapping[str, str], seconds: Callable[[str | float], float]) -> list[Webhook]:
    """The tables of `[[webhook]]`, with `HOWDAH_WEBHOOK_<NAME>_<KEY>` on top; a new name makes a new one.

    ``seconds`` reads a duration.
    """
    if not isinstance(said, Sequence) or isinstance(said, str) or not all(isinstance(each, Mapping) for each in said):
        raise ConfigError("webhook is a list of tables; write [[webhook]] above each")
    tables = {_spelled(_name(each)): dict(each) for each in said}
    if len(tables) < len(said):
        raise ConfigError("two webhooks have the same name; give one of them another")
    for variable, value in sorted(environ.items()):
        match = re.fullmatch(rf"HOWDAH_WEBHOOK_(\w+?)_({'|'.join(FIELDS).upper()})", variable)
        if match and value:
            key = match[2].lower()
            tables.setdefault(match[1], {"name": match[1].lower()})[key] = _read(key, value)
    return [_made(name, table, seconds) for name, table in tables.items()]


def _name(table: Mapping[str, Any]) -> str:
    if isinstance(table.get("name"), str):
        return str(table["name"])
    try:
        return httpx.URL(table.get("url", "")).host
    except (httpx.InvalidURL, TypeError):
        return ""


def _spelled(name: str) -> str:
    """A name as a variable has it."""
    return re.sub(r"\W", "_", name).upper()


def _read(key: str, value: str) -> Any:
    if key in LISTS:
        return [part.strip() for part in value.split(",") if part.strip()]
    if key in ("allow_http", "allow_private") and value.lower() in WORDS:
        return WORDS[value.lower()]
    return [part.strip() for part in value.split(",")] if key == "allow_private" else value


def _made(name: str, table: Mapping[str, Any], seconds: Callable[[str | float], float]) -> Webhook:
    called = _name(table) or name.lower()
    for key in table:
        if key not in FIELDS:
            raise ConfigError(
                f"webhook {called!r} has an unknown key {key!r}; known keys are {', '.join(sorted(FIELDS))}"
            )
    given = dict(table)
    if "stuck_after" in given:
        given["stuck_after"] = seconds(given["stuck_after"])
    try:
        return msgspec.convert(given, Webhook)
    except msgspec.ValidationError as error:
        raise ConfigError(f"webhook {called!r}: {str(error)[:1].lower()}{str(error)[1:]}") from None
