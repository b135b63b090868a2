"""The version: declared once, in src/howdah/version.py, and the same wherever it is shown."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import howdah
from howdah.version import __version__

ROOT = Path(__file__).parents[2]


def test_the_version_is_declared_once() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "version" not in pyproject["project"]
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["hatch"]["version"]["path"] == "src/howdah/version.py"


def test_the_installed_metadata_has_the_declared_version() -> None:
    assert version("howdah") == __version__ == howdah.__version__


def test_reading_the_version_does_not_search_the_installed_packages() -> None:
    code = "import sys, howdah; assert howdah.__version__; print('importlib.metadata' in sys.modules)"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "False"
