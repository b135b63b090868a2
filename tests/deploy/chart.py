"""A chart, rendered: as much of Go's templates as ours use, and an error for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "howdah"
ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
WORD = re.compile(r'"[^"]*"|[()|]|[^\s()|]+')
Node = tuple[str, Any]


def values() -> dict[str, Any]:
    """What the chart has if nobody says anything."""
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def render(values: Mapping[str, Any], *, release: str = "farm", namespace: str = "jobs") -> list[dict[str, Any]]:
    """Every object of the chart."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {
        "Values": values,
        "Release": {"Name": release, "Namespace": namespace},
        "Chart": {"AppVersion": chart["appVersion"], "Version": chart["version"]},
    }
    texts = [expand(file.read_text(), scope) for file in sorted((CHART / "templates").glob("*.yaml"))]
    return [made for text in texts for made in yaml.safe_load_all(text) if made is not None]


def expand(template: str, scope: Mapping[str, Any]) -> str:
    """A template with everything put in.

    >>> expand('{{ .Values.b | quote }}{{ range .Values.c }}, {{ . }}{{ end }}', {"Values": {"b": 1, "c": [2, 3]}})
    '"1", 2, 3'
    """
    nodes, rest = _parse(_tokens(template))
    assert rest is None, f"a stray {rest}"
    return _say(nodes, scope, scope)


def _tokens(template: str) -> Iterator[Node]:
    at, trim = 0, False
    for match in ACTION.finditer(template):
        text = template[at : match.start()]
        text = text.lstrip() if trim else text
        yield "text", text.rstrip() if match[1] else text
        yield "do", match[2]
        at, trim = match.end(), bool(match[3])
    yield "text", template[at:].lstrip() if trim else template[at:]


def _parse(tokens: Iterator[Node]) -> tuple[list[Node], str | None]:
    """Nodes up to the end of the block, and the word that ended it."""
    nodes: list[Node] = []
    for kind, text in tokens:
        word, _, rest = text.partition(" ")
        if kind == "text":
            nodes.append((kind, text))
        elif word in ("end", "else"):
            return nodes, word
        elif word in ("if", "range"):
            inner, ended = _parse(tokens)
            other, ended = _parse(tokens) if ended == "else" else ([], ended)
            assert ended == "end", f"{text} has no end"
            nodes.append((word, (rest, inner, other)))
        else:
            nodes.append((kind, text))
    return nodes, None


def _say(nodes: Sequence[Node], dot: Any, scope: Mapping[str, Any]) -> str:
    output = []
    for kind, what in nodes:
        if kind == "text":
            output.append(what)
        elif kind == "do":
            output.append(_text(_value(what, dot, scope)))
        elif kind == "if":
            output.append(_say(what[1] if _value(what[0], dot, scope) else what[2], dot, scope))
        else:
            output += [_say(what[1], each, scope) for each in _value(what[0], dot, scope)]
    return "".join(output)


def _value(expression: str, dot: Any, scope: Mapping[str, Any]) -> Any:
    words = WORD.findall(expression)
    value = _pipeline(words, dot, scope)
    assert not words, f"cannot read {expression!r}"
    return value


def _pipeline(words: list[str], dot: Any, scope: Mapping[str, Any]) -> Any:
    value = _call(words, dot, scope)
    while words and words[0] == "|":
        words.pop(0)
        value = _call(words, dot, scope, value)
    return value


def _call(words: list[str], dot: Any, scope: Mapping[str, Any], *piped: Any) -> Any:
    function = FUNCTIONS.get(words[0])
    if function is None:
        return _term(words, dot, scope)
    words.pop(0)
    arguments = []
    while words and words[0] not in "|)":
        arguments.append(_term(words, dot, scope))
    return function(*arguments, *piped)


def _term(words: list[str], dot: Any, scope: Mapping[str, Any]) -> Any:
    word = words.pop(0)
    if word == "(":
        value = _pipeline(words, dot, scope)
        assert words.pop(0) == ")"
        return value
    if word.startswith('"'):
        return word[1:-1]
    if word.lstrip("-").isdigit():
        return int(word)
    assert word.startswith("."), f"{word!r} is none of {', '.join(FUNCTIONS)}"
    value = dot
    for name in filter(None, word.split(".")):
        assert name in value, f"there is no {word}"  # Go would say nothing, and leave a hole
        value = value[name]
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _indent(width: int, text: str) -> str:
    return "\n" + "\n".join(" " * width + line if line else line for line in text.splitlines())


FUNCTIONS = {
    "quote": lambda value: '"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"',
    "default": lambda instead, value: value or instead,
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=False).rstrip("\n"),
    "nindent": _indent,
    "add": lambda *numbers: sum(numbers),
    "int": int,
    "gt": lambda one, other: one > other,
    "not": lambda value: not value,
}
