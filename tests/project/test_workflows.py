"""The files of the project itself: workflows parse, and name the versions that the package and the docs name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from howdah.diagnose.doctor.server import OLDEST
from security.licences import PYTHONS

ROOT = Path(__file__).parents[2]
YAML = [ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def pythons() -> list[str]:
    """The versions of the classifiers, oldest first."""
    return [match[1] for each in PROJECT["classifiers"] if (match := re.fullmatch(r".*:: Python :: (3\.\d+)", each))]


def supported(row: str) -> list[str]:
    """The versions in a row of the table of docs/reference/versions.md."""
    page = (ROOT / "docs" / "reference" / "versions.md").read_text(encoding="utf-8")
    [versions] = re.findall(rf"^\| {row} \| (.*) \|$", page, re.MULTILINE)
    return versions.split(", ")


@pytest.mark.parametrize("path", YAML, ids=label)
def test_a_file_is_valid_yaml(path: Path) -> None:
    assert read(path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=label)
def test_a_workflow_has_time_limits_and_few_rights(path: Path) -> None:
    workflow = read(path)

    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in workflow["jobs"].items() if "timeout-minutes" not in job] == []


def test_python_versions_agree() -> None:
    found = pythons()
    jobs = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]

    assert f">={found[0]}" == PROJECT["requires-python"]
    assert found == supported("Python") == list(PYTHONS)
    assert jobs["behaviour"]["strategy"]["matrix"]["python"] == jobs["wheel"]["strategy"]["matrix"]["python"] == found
    assert jobs["suite"]["strategy"]["matrix"]["python"] == [found[0], found[-1]]
    setup = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    assert re.findall(r"python(3\.\d+)", setup.partition("fail ")[0])[::-1] == found


def test_a_job_with_one_python_uses_a_supported_one() -> None:
    steps = [step for path in WORKFLOWS for job in read(path)["jobs"].values() for step in job["steps"]]
    named = {step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")}

    assert named - {"${{ matrix.python }}"} <= set(pythons())


def test_postgresql_versions_agree() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["behaviour"]["strategy"]["matrix"]

    assert matrix["postgresql"] == supported("PostgreSQL")
    assert int(matrix["postgresql"][0]) == OLDEST // 10_000


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".pre-commit-config.yaml"], ids=label)
def test_the_scripts_and_tests_that_are_named_exist(path: Path) -> None:
    named = set(re.findall(r"(?:scripts|tests)/[\w-]+", path.read_text(encoding="utf-8")))

    assert named
    assert {each for each in named if not (ROOT / each).exists()} == set()


def test_the_linter_and_the_type_checker_assume_the_oldest_python() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]

    assert tool["mypy"]["python_version"] == pythons()[0]


def test_the_pins_name_no_address() -> None:
    pins = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")

    assert "://" not in pins
    assert len(re.findall(r"^\S+==", pins, re.MULTILINE)) > 50
    assert re.findall(r"^\S+==[^\\\n]*$", pins, re.MULTILINE) == [], "a pin without a hash"
