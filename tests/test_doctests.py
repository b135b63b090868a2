"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import howdah
import howdah_agent
import howdah_lab

MODULES = [
    info.name
    for package in (howdah, howdah_agent, howdah_lab)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith((".__main__", ".child", ".bench.node"))
]


@pytest.mark.parametrize("name", MODULES)
def test_what_a_docstring_shows_is_so(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) > 30
