"""What the sources may not say, and every place where they say it all the same, with the reason (S1, S2, S6, S16)."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import howdah
import howdah_agent
import howdah_lab

ROOT = Path(__file__).parents[2]
PACKAGES = [Path(package.__file__).parent for package in (howdah, howdah_agent, howdah_lab)]
SOURCES = sorted(file for package in PACKAGES for file in package.rglob("*.py"))

MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "dill",
    "cloudpickle",
    "shelve",
    "yaml",
    "code",
    "codeop",
    "xmlrpc",
}
"""Modules that turn data into code or objects."""
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "ast.literal_eval", "builtins.eval"}
"""Functions that turn text into code or commands."""

IMPORTS = {
    "__init__.py": "the public names, from a table in the file",
    "bench/figure.py": "which packages are installed, from a table in the file",
    "cli/__init__.py": "the commands, from a table in the file",
    "config.py": "the application: -a, HOWDAH_APP or howdah.toml, by whoever starts the process",
    "contrib/__init__.py": "the adapter of a library, from a table in the file",
    "testing/__init__.py": "the names of the kit, from a table in the file",
    "torture": "the faults, from a table in the file",
    "worker/processes/wire.py": "in the process of a handler: the module of a function that the application registered",
}
"""Where a module is imported by a name that is no literal, and where the name is from."""

EXCEPTIONS = {
    ("S105", "sidecar/command.py"): "the name of a variable",
    ("S105", "table/contract.py"): "the name of a column",
    (
        "S108",
        "postgres/embedded/data_directory.py",
    ): "our own folder in it, mode 0700: paths of sockets must be short",
    ("S110", "maintenance/__init__.py"): "the last seconds of a chart are not worth an error at exit",
    ("S603", "bench/environment.py"): "pip and npm with our own pinned lists, and `--version`; no shell",
    ("S603", "bench/server.py"): "Redis, words we made; no shell",
    ("S603", "postgres/embedded/binaries.py"): "`postgres --version`, of a folder we looked for ourselves; no shell",
    ("S603", "postgres/embedded/server.py"): "our own file, with our own Python; no shell",
    ("S603", "postgres/embedded/guardian.py"): "PostgreSQL itself, words we made; no shell",
    ("S603", "program/guard.py"): "running what the application names is what it is for; no shell",
    ("S606", "torture"): "a program that leaves the session of its job, words we made; no shell",
    ("S603", "torture"): "programs to be killed, frozen and filled up, words we made; no shell",
    ("S607", "torture"): "programs of the system, found by the PATH of whoever tortures his own machine",
    ("S608", "postgres/migrate.py"): "the name of the schema, quoted by `identifier`",
}
"""Every `noqa: S…` in the sources but for S311, and why the rule does not hold there."""
JITTER = {
    "bench/scenarios/event_latency.py",
    "bench/scenarios/remote_workers.py",
    "bench/simulated_workers.py",
    "bench/systems/kit/kit.py",
    "demo/app.py",
    "demo/workload.py",
    "remote/store.py",
    "events/append.py",
    "webhooks/delivery.py",
    "postgres/migrate.py",
    "retry.py",
    "loops.py",
    "supervisor.py",
    "torture",
}
"""Where S311 is lifted: chance for pauses and made-up work, never for anything secret, which `secrets` makes."""


def name_of(file: Path) -> str:
    [package] = [package for package in PACKAGES if file.is_relative_to(package)]
    return file.relative_to(package).as_posix()


def place_of(file: Path) -> str:
    """The file; of a room that is all about processes, the room."""
    return "torture" if name_of(file).startswith("torture/") else name_of(file)


def test_the_rules_against_insecure_code_are_on_everywhere() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]

    assert "S" in rules["select"]
    assert [code for code in rules["ignore"] if code.startswith("S") and not code.startswith("SIM")] == ["S101"]
    lifted = {path for path, codes in rules["per-file-ignores"].items() for code in codes if re.match(r"S\d*$", code)}
    assert lifted == {"tests/*", "examples/*"}, "none of it is shipped"


def test_every_exception_to_them_is_known_and_no_other() -> None:
    found = {
        (code, place_of(file))
        for file in SOURCES
        for comment in re.findall(r"#\s*(?:noqa|ruff: noqa)\b:?(.*)", file.read_text(encoding="utf-8"))
        for code in re.findall(r"\bS\d{3}\b", comment) or ([] if re.match(r"\s*[A-Z]", comment) else ["everything"])
    }

    assert {each for each in found if each[0] != "S311"} == EXCEPTIONS.keys(), (
        "add the line with its reason, or better none"
    )
    assert {file for code, file in found if code == "S311"} == JITTER


def test_data_never_becomes_code() -> None:
    assert len(SOURCES) > 100
    found = {name_of(file): list(breaches(ast.parse(file.read_text(encoding="utf-8")))) for file in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_what_would_make_code_of_it_is_seen() -> None:
    bad = "import pickle; from yaml import load; eval(x); os.system(y); run(z, shell=True)"
    seen = ["imports pickle", "imports yaml", "calls eval", "calls os.system", "asks for a shell"]
    assert sorted(breaches(ast.parse(bad))) == sorted(seen)
    assert list(breaches(ast.parse("re.compile(x); platform.system(); json.loads(y); run([z], shell=False)"))) == []


def breaches(tree: ast.AST) -> Iterator[str]:
    """What a file should not say."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"imports {each.name}" for each in names if each.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in MODULES:
                yield f"imports {module}"
            case ast.Call(func=function) if ast.unparse(function) in CALLS:
                yield f"calls {ast.unparse(function)}"
        match node:
            case ast.keyword("shell", ast.Constant(value)) if value:
                yield "asks for a shell"


def test_modules_are_imported_by_names_of_our_own_or_of_whoever_starts_us() -> None:
    by_name = {
        place_of(file)
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "run_path", "run_module")
        and not isinstance(node.args[0], ast.Constant)
    }

    assert by_name == IMPORTS.keys(), "say where the name is from; never from a row or a request"
