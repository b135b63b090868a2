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
from howdah.fleet.options import ServeOptions
from howdah.jobs.labels import check_label
from howdah.notices.said import webhooks_of
from howdah.notices.webhook import Webhook
from howdah.parts import PARTS, Keep, Serve
from howdah.pg.database import Database, dsn_from_environment
from howdah.redact import KEYS, Hook, Redact
from howdah.task import Task
from howdah.upkeep.pruner import Retention
from howdah.work.options import WorkerOptions, parse_queues

T = TypeVar("T")
FILE = "howdah.toml"
DEV_NOTE = Path(".howdah/dsn")
"""Where `howdah dev` notes its database for other commands in the same folder."""
DURATIONS = ("poll", "heartbeat", "lease", "grace", "rebalance", "dispatch")
SERVE_DURATIONS = ("heartbeat", "offline_after")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


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
    rebalance: float | None = None
    dispatch: float | None = None
    leader: Literal["lease", "advisory"] | None = None
    """How the leader of the consumers is chosen."""
    processes: int | None = None
    metrics: str | None = None
    """``host:port`` of the node's own metrics and health page."""
    server: str | None = None
    """The URL of a control plane: work through it, without a database."""
    token: str | None = None
    """What opens it."""
    token_file: str | None = None
    """The file the token is in."""
    ca: str | None = None
    """The file of the authority that signed the certificate of the control plane."""
    labels: list[str] | None = None
    """What this node has that jobs may require."""
    serve: Serve | None = None
    retention: Keep | None = None
    redact: str | None = None
    """A regular expression of keys whose values nobody is shown."""
    webhook: list[Webhook] | None = None
    """Who outside is told what happens, besides those the application names."""
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

    def redaction(self, hook: Hook | None = None) -> Redact:
        """What people are shown of jobs: these keys are hidden, and then the application has its say."""
        return Redact(KEYS if self.redact is None else self.redact, hook)

    def worker_options(self, **more: Any) -> WorkerOptions:
        """How a worker behaves, with the defaults for what was not said."""
        names = ("slots", "queues", "labels", *DURATIONS, "notify", "leader")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        for label in self.labels or ():
            check_label(label)
        return WorkerOptions(**said, **more)

    def serve_options(self, **flags: Any) -> ServeOptions:
        """How a control plane behaves, with ``flags`` on top and the defaults for what was not said."""
        said = msgspec.structs.asdict(self.serve or Serve()) | {k: v for k, v in flags.items() if v is not None}
        return ServeOptions(**{name: value for name, value in said.items() if value is not None})

    def keep(self, default: Retention | None = None) -> Retention:
        """How long finished jobs are kept, with ``default`` for what was not said."""
        default, said = default or Retention(), self.retention or Keep()
        return Retention(
            done=default.done if said.done is None else said.done,
            failed=default.failed if said.failed is None else said.failed,
            logs=default.logs if said.logs is None else said.logs,
            audit=default.audit if said.audit is None else said.audit,
        )


def load(path: str | None = None) -> Settings:
    """The settings of this folder: the file (found upwards unless ``path`` names it), then the environment."""
    file = find(path or os.environ.get("HOWDAH_CONFIG"))
    said, above = _from_file(file) if file else {}, _from_environment(os.environ)
    for part in PARTS:
        if part in said and part in above:  # what only the file says of it stays
            fields = msgspec.structs.asdict(above[part])
            above[part] = msgspec.structs.replace(said[part], **{k: v for k, v in fields.items() if v is not None})
    told = _named(
        str(file or "the environment"), lambda raw: webhooks_of(raw, os.environ, seconds), said.pop("webhook", [])
    )
    return Settings(**(said | above), webhook=told or None).over(dsn=dsn_from_environment())


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
    known: dict[str, tuple[Any, Any]] = {"": (table, (*Settings.__struct_fields__, "concurrency"))}
    known |= {f"{key}.": (table.get(key), part.__struct_fields__) for key, part in PARTS.items()}
    for key, (said, fields) in known.items():
        for name in said if isinstance(said, dict) else ():
            if name not in fields:
                raise ConfigError(f"{file}: unknown key {key + name!r}{_meant(name, fields)}")
    return _settle(table, str(file), lambda key: f"{file}: {key}", strict=True)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in (*Settings.__struct_fields__, "concurrency"):
        value = environ.get(f"HOWDAH_{name.upper()}")
        if value and name not in PARTS and name != "webhook":
            table[name] = value.lower() if name in ("notify", "leader", "log_json", "log_level") else value
    for key, part in PARTS.items():
        said = {name: environ.get(f"HOWDAH_{key}_{name}".upper()) for name in part.__struct_fields__}
        if any(said.values()):
            table[key] = {name: value for name, value in said.items() if value}
    return _settle(table, "the environment", lambda key: f"HOWDAH_{key.upper().replace('.', '_')}", strict=False)


def _settle(table: Mapping[str, Any], source: str, name: Callable[[str], str], *, strict: bool) -> dict[str, Any]:
    """The table of one source with every value in its own type; ``name`` says what a key is called there."""
    table = dict(table)
    raw = {"webhook": table.pop("webhook")} if "webhook" in table else {}
    if "concurrency" in table:
        if "slots" in table:
            raise ConfigError(f"{source}: slots and concurrency are the same; say one of them")
        table["slots"] = table.pop("concurrency")
    for key in DURATIONS:
        if key in table:
            table[key] = _named(name(key), seconds, table[key])
    for part, times in (("retention", Keep.__struct_fields__), ("serve", SERVE_DURATIONS)):
        if isinstance(table.get(part), dict):
            table[part] = {
                key: _named(name(f"{part}.{key}"), seconds, value) if key in times else value
                for key, value in table[part].items()
            }
    if isinstance(table.get("labels"), str):
        table["labels"] = [label.strip() for label in table["labels"].split(",") if label.strip()]
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
    given = {key: getattr(settings, key) for key in Settings.__struct_fields__}
    return {key: value for key, value in given.items() if value is not None} | raw


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
