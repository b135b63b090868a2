"""Reads settings: ``howdah.toml``, then the environment, then flags; each overrides the one before."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from howdah.app import Howdah
from howdah.control_plane.options import ServeOptions
from howdah.errors import ConfigError
from howdah.maintenance.pruner import Retention
from howdah.option_types import seconds as seconds  # a duration as the settings have it
from howdah.options import Given, Option, OptionError, named, options_of, variable
from howdah.postgres.database import Database
from howdah.postgres.dsn import dsn_from_environment
from howdah.redact import Hook, Redact
from howdah.settings import AppOptions, DevOptions, LogOptions, ProcessOptions
from howdah.task import Task
from howdah.webhooks.webhook import Webhook, webhooks_of
from howdah.worker.options import WorkerOptions

T = TypeVar("T")
FILE = "howdah.toml"
DEV_NOTE = Path(".howdah/dsn")
"""Where `howdah dev` notes its database for other commands in the same folder."""
CLASSES = (AppOptions, WorkerOptions, ProcessOptions, Retention, LogOptions, ServeOptions, DevOptions)
"""The classes of options whose keys the file may have."""
ELSEWHERE = ("sidecar",)
"""Tables of the file that other packages declare; the commands of these packages check their keys."""


@dataclass(frozen=True)
class Settings:
    """The options that are given, by key; the others have their defaults."""

    given: Mapping[str, Given] = field(default_factory=dict, repr=False)
    webhooks: tuple[Webhook, ...] = ()
    """The webhooks of the file and the environment."""

    def over(self, flags: Mapping[str, Given]) -> Settings:
        """Return these settings, overridden by ``flags``."""
        return dataclasses.replace(self, given=_merge(self.given, flags))

    def of(self, cls: type[T], default: T | None = None) -> T:
        """Return the options of a class; those that are not given are as in ``default``."""
        given = {each.name: self.given[each.key] for each in options_of(cls) if each.key in self.given}
        values: Any = {name: each.value for name, each in given.items()}
        if default is not None and not given:
            return default
        try:
            return cls(**values) if default is None else dataclasses.replace(default, **values)  # type: ignore[type-var]
        except OptionError as error:
            where = [f"{name} is set by {given[name].source}" for name in error.names if name in given]
            raise ConfigError("; ".join([str(error), *where])) from None

    @property
    def app(self) -> str | None:
        """The name of the application, ``module:attribute``."""
        return self.of(AppOptions).app

    def database(self) -> Database:
        """Return the database that is given, else the one that `howdah dev` runs in this folder."""
        options = self.of(AppOptions)
        dsn = options.dsn or _dsn_of_dev()
        if dsn is None:
            raise ConfigError(
                "no database is named; give --dsn, set HOWDAH_DSN, DATABASE_URL or PGHOST,"
                f' or write dsn = "…" into {FILE}'
            )
        return Database(dsn, schema=options.schema or "howdah")

    def redaction(self, hook: Hook | None = None) -> Redact:
        """Return the masking of values in output; the application's ``hook`` is called after it."""
        return Redact(self.of(AppOptions).redact, hook)


def load(path: str | None = None, *more: type) -> Settings:
    """Read the settings file (found upwards unless ``path`` names it) and the environment.

    ``more`` are classes of options besides :data:`CLASSES`.
    """
    file = find(path or os.environ.get("HOWDAH_CONFIG"))
    table = _table(file) if file else {}
    known = [each for cls in (*CLASSES, *more) for each in options_of(cls)]
    given = _merge(_from_file(file, table, known) if file else {}, _from_environment(os.environ, known))
    return Settings(given, tuple(webhooks_of(table.get("webhook", []), os.environ, str(file))))


def find(path: str | None = None, start: Path | None = None) -> Path | None:
    """Return ``path``, else the nearest `howdah.toml`, or `pyproject.toml` with `[tool.howdah]`, upwards."""
    if path is not None:
        if not Path(path).is_file():
            raise ConfigError(f"{path}: there is no such file")
        return Path(path)
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file() and _trusted(folder / FILE, here):
            return folder / FILE
        project = folder / "pyproject.toml"
        if project.is_file() and _trusted(project, here) and "howdah" in _read(project).get("tool", {}):
            return project
    return None


def _trusted(file: Path, here: Path) -> bool:
    """Return whether to read a file found in a folder above: it names code that is run.

    In /tmp, for example, another user could have left one.
    """
    if file.parent == here or file.stat().st_uid in (0, os.geteuid(), here.stat().st_uid):
        return True
    if file.name == FILE:
        log.warning("%s is not read: it belongs to another user; name it with --config if you trust it", file)
    return False


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{file}: {error}") from None


def _table(file: Path) -> dict[str, Any]:
    table = _read(file)
    if file.name == "pyproject.toml":
        table = table.get("tool", {}).get("howdah", {})
    return table


def _from_file(file: Path, table: Mapping[str, Any], known: Sequence[Option]) -> dict[str, Given]:
    options = {key: each for each in known for key in each.keys}
    sections = {each.section for each in known} - {""}
    given: dict[str, Given] = {}
    for key, value in _keys(file, table, sections):
        if key not in options:
            raise ConfigError(f"{file}: unknown key {key!r}{_meant(key, [*options, *sections, *ELSEWHERE, 'webhook'])}")
        _add(given, options[key], f"{file}: {key}", options[key].read, value)
    return given


def _keys(file: Path, table: Mapping[str, Any], sections: Container[str]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of the file, those of a table with its name before them."""
    for name, value in table.items():
        if name in sections:
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: {name} must be a table, got {value!r}; write [{name}] above its keys")
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        elif name not in ("webhook", *ELSEWHERE):
            yield name, value


def _meant(key: str, known: Sequence[str]) -> str:
    """Name the nearest key of the same table, else all of them."""
    section, _, name = key.rpartition(".")
    beside = sorted({each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == section})
    close = difflib.get_close_matches(name, beside, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys are {', '.join(beside)}"


def _from_environment(environ: Mapping[str, str], known: Sequence[Option]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for each in known:
        for key in each.keys:
            if text := environ.get(variable(key)):
                _add(given, each, variable(key), each.parse, text)
    _warn_of_misspelled(environ, known)
    if dsn := dsn_from_environment():
        given["dsn"] = Given(dsn, "the environment")
    return given


log = logging.getLogger("howdah")
_warned: set[str] = set()


def _warn_of_misspelled(environ: Mapping[str, str], known: Sequence[Option]) -> None:
    """Warn once of a variable that is almost the name of an option: a misspelled one would have no effect."""
    names = {variable(key) for each in known for key in each.keys}
    for name in sorted(set(environ) - names - _warned):
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.92) if name.startswith("HOWDAH_") else []
        if close and name.removesuffix("_FILE") not in names:
            _warned.add(name)
            log.warning("the environment variable %s is not an option; did you mean %s?", name, close[0])


def _add(given: dict[str, Given], option: Option, source: str, read: Callable[[Any], Any], value: Any) -> None:
    """Add an option that ``source`` gives."""
    if option.key in given:
        raise ConfigError(f"{given[option.key].source} and {source} are the same option; set one of them")
    try:
        given[option.key] = Given(read(value), source)
    except ConfigError as error:
        raise ConfigError(named(source, error)) from None


def _merge(below: Mapping[str, Given], above: Mapping[str, Given]) -> dict[str, Given]:
    """Return the options of two sources; one given above overrides also the file that holds it below."""
    files = {f"{key}_file" for key in above}
    return {key: each for key, each in below.items() if key not in files} | dict(above)


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
        what = "type" if isinstance(found, type) else type(found).__name__
        raise ConfigError(f"{spec} is a {what}, not a Howdah; name the object made by Howdah()")
    return found


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
