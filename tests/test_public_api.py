"""The front door: what is documented is there, and opening it costs little."""

from __future__ import annotations

import subprocess
import sys

import pytest

import howdah


def test_every_public_name_is_there_and_no_other():
    assert sorted(set(howdah.__all__)) == sorted(howdah.__all__), "a name is listed twice"
    assert set(howdah.__all__) == {*howdah._HOME, "__version__"}
    for name in howdah.__all__:
        assert getattr(howdah, name) is not None
    assert dir(howdah) == sorted(howdah.__all__)


def test_a_misspelt_name_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="Howda"):
        _ = howdah.Howda


def test_the_test_plugin_loads_without_a_driver():
    code = (
        "import sys, howdah.testing.plugin; print([m for m in ('asyncpg', 'howdah.app', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
