"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import howdah

MODULES = [
    info.name
    for info in pkgutil.walk_packages(howdah.__path__, "howdah.")
    if not info.name.endswith((".__main__", ".child", ".bench.node"))
]


@pytest.mark.parametrize("name", MODULES)
def test_what_a_docstring_shows_is_so(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) > 30
