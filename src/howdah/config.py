"""Settings: from `howdah.toml`, the environment and flags, in that order, each on top of the one before."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import msgspec

from howdah.app import Howdah
from howdah.errors import ConfigError
from howdah.pg.database import Database, dsn_from_environment
from howdah.task import Task
from howdah.upkeep.pruner import Retention
from howdah.work.options import WorkerOptions, parse_queues

T = TypeVar("T")
FILE = "howdah.toml"
DEV_NOTE = Path(".howdah/dsn")
"""Where `howdah dev` notes its database for other commands in the same folder."""
DURATIONS = ("poll", "heartbeat", "lease", "grace")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long finished jobs are kept, in seconds; what is not said stays at its default."""

    done: float | None = None
    failed: float | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was said about this installation; ``None`` means not said."""

    app: str | None = None
    """Where the application object is, as ``module:attribute``."""
    dsn: str | None = None
    schema: str | None = None
    slots: int | None = None
    """Jobs running at once; `concurrency` is the same."""
    queues: dict[str, int | None] | None = None
    poll: float | None = None
    heartbeat: float | None = None
    lease: float | None = None
    grace: float | None = None
    notify: bool | None = None
    processes: int | None = None
    metrics: str | None = None
    """``host:port`` of the node's own metrics and health page."""
    retention: Keep | None = None
    log_level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    log_json: bool | None = None

    def over(self, **flags: Any) -> Settings:
        """These settings with ``flags`` on top; a flag that is ``None`` was not given."""
        given = {name: value for name, value in flags.items() if value is not None}
        return msgspec.structs.replace(self, **given)

    def database(self) -> Database:
        """Where the data lives: what was said here and in the environment, else what `howdah dev` runs here."""
        dsn = self.dsn or _dsn_of_dev()
        if dsn is None:
            raise ConfigError(
                "no database is named; give --dsn, set HOWDAH_DSN, DATABASE_URL or PGHOST,"
                f' or write dsn = "…" into {FILE}'
            )
        return Database(dsn, schema=self.schema or "howdah")

    def worker_options(self, **more: Any) -> WorkerOptions:
        """How a worker behaves, with the defaults for what was not said."""
        names = ("slots", "queues", *DURATIONS, "notify")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return WorkerOptions(**said, **more)

    def keep(self, default: Retention | None = None) -> Retention:
        """How long finished jobs are kept, with ``default`` for what was not said."""
        default, said = default or Retention(), self.retention or Keep()
        return Retention(
            done=default.done if said.done is None else said.done,
            failed=default.failed if said.failed is None else said.failed,
        )


def load(path: str | None = None) -> Settings:
    """The settings of this folder: the file (found upwards unless ``path`` names it), then the environment."""
    file = find(path or os.environ.get("HOWDAH_CONFIG"))
    said = _from_file(file) if file else {}
    said |= _from_environment(os.environ)
    return Settings(**said).over(dsn=dsn_from_environment())


def _dsn_of_dev() -> str | None:
    """The database `howdah dev` runs in this folder, if it does and the note is ours alone."""
    try:
        facts = DEV_NOTE.stat()
        return DEV_NOTE.read_text() if facts.st_uid == os.geteuid() and not facts.st_mode & 0o077 else None
    except OSError:
        return None


def load_app(spec: str) -> Howdah:
    """The application object at ``module:attribute`` (`app` when only a module is named); a factory is called."""
    module_name, _, path = spec.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"{spec!r} does not name an application; write module:attribute, as in shop.jobs:app")
    module = _import(module_name)
    found: Any = module
    for part in (path or "app").split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(module).items() if isinstance(value, Howdah)]
            instead = f"; did you mean {module_name}:{apps[0]}?" if apps else "; it should be made by Howdah()"
            raise ConfigError(f"module {module_name!r} has no {path or 'app'!r}{instead}")
        found = getattr(found, part)
    if callable(found) and not isinstance(found, Howdah | Task | type):
        found = found()
    if not isinstance(found, Howdah):
        raise ConfigError(f"{spec} is a {type(found).__name__}, not a Howdah; name the object made by Howdah()")
    return found


def find(path: str | None = None, start: Path | None = None) -> Path | None:
    """The settings file: ``path``, or the nearest `howdah.toml` or `pyproject.toml` with `[tool.howdah]` upwards."""
    if path is not None:
        if not Path(path).is_file():
            raise ConfigError(f"{path}: there is no such file")
        return Path(path)
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder / FILE
        project = folder / "pyproject.toml"
        if project.is_file() and "howdah" in _read(project).get("tool", {}):
            return project
    return None


def seconds(text: str | float) -> float:
    """Read a duration: seconds, or a number with a unit.

    >>> seconds("90s"), seconds("15m"), seconds("14d"), seconds("1h30m"), seconds("2.5")
    (90.0, 900.0, 1209600.0, 5400.0, 2.5)
    """
    if isinstance(text, str):
        compact = text.strip().lower().replace(" ", "")
        if re.fullmatch(r"(\d+(\.\d+)?(ms|[smhdw]))+", compact):
            parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", compact)
            return sum(float(number) * UNITS[unit] for number, unit in parts)
        if re.fullmatch(r"\d+(\.\d+)?", compact):
            return float(compact)
    elif isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < float("inf"):
        return float(text)
    raise ConfigError(f"{text!r} is not a duration; write 90s, 15m, 24h or 14d")


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {name!r} here; the current folder is {here}") from None
        raise ConfigError(f"module {name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise ConfigError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(file: Path) -> dict[str, Any]:
    table = _read(file)
    if file.name == "pyproject.toml":
        table = table.get("tool", {}).get("howdah", {})
    for key, known in (("", table), ("retention.", table.get("retention"))):
        for name in known if isinstance(known, dict) else ():
            fields = Keep.__struct_fields__ if key else (*Settings.__struct_fields__, "concurrency")
            if name not in fields:
                raise ConfigError(f"{file}: unknown key {key + name!r}{_meant(name, fields)}")
    return _settle(table, str(file), lambda key: f"{file}: {key}", strict=True)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in (*Settings.__struct_fields__, "concurrency"):
        value = environ.get(f"HOWDAH_{name.upper()}")
        if value and name != "retention":
            table[name] = value.lower() if name in ("notify", "log_json", "log_level") else value
    keep = {name: environ.get(f"HOWDAH_RETENTION_{name.upper()}") for name in Keep.__struct_fields__}
    if any(keep.values()):
        table["retention"] = {name: value for name, value in keep.items() if value}
    return _settle(table, "the environment", lambda key: f"HOWDAH_{key.upper().replace('.', '_')}", strict=False)


def _settle(table: Mapping[str, Any], source: str, name: Callable[[str], str], *, strict: bool) -> dict[str, Any]:
    """The table of one source with every value in its own type; ``name`` says what a key is called there."""
    table = dict(table)
    if "concurrency" in table:
        if "slots" in table:
            raise ConfigError(f"{source}: slots and concurrency are the same; say one of them")
        table["slots"] = table.pop("concurrency")
    for key in DURATIONS:
        if key in table:
            table[key] = _named(name(key), seconds, table[key])
    if isinstance(table.get("retention"), dict):
        table["retention"] = {
            key: _named(name(f"retention.{key}"), seconds, value) for key, value in table["retention"].items()
        }
    if isinstance(table.get("queues"), list):
        table["queues"] = ",".join(map(str, table["queues"]))
    if isinstance(table.get("queues"), str):
        table["queues"] = _named(name("queues"), parse_queues, table["queues"])
    if isinstance(table.get("log_level"), str):
        table["log_level"] = table["log_level"].lower()
    try:
        settings = msgspec.convert(table, Settings, strict=strict)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$.")
        raise ConfigError(f"{name(where.rstrip('`'))}: {said[:1].lower()}{said[1:]}") from None
    return {key: getattr(settings, key) for key in Settings.__struct_fields__ if getattr(settings, key) is not None}


def _named(name: str, read: Callable[[Any], T], value: object) -> T:
    try:
        return read(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{file}: {error}") from None


def _meant(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys are {', '.join(sorted(known))}"
