"""deploy/helm: rendered, the chart passes the same checks as the plain manifests, whatever is said in its values."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.chart import CHART, expand, render, values
from deploy.manifests import check_all, parsed
from howdah.version import __version__

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def values_with(**parts: dict[str, Any]) -> dict[str, Any]:
    """The values, with something else said."""
    made = copy.deepcopy(values())
    for name, part in parts.items():
        made[name] |= part
    return made


def valid(values: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(values)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"sidecar": {"enabled": False}},
        {"worker": {"autoscaled": True, "queues": "builds:2,default", "labels": ["gpu", "linux/arm64"], "grace": 3600}},
        {
            "worker": {
                "nodeSelector": {"gpu": "yes"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "metricsPort": 9200,
            }
        },
        {"controlPlane": {"replicas": 1, "port": 9000, "heartbeat": 10, "offlineAfter": 30}},
        {"migrate": {"enabled": False}},
    ],
    ids=lambda changed: ",".join(changed) or "as it is",
)
def test_what_is_rendered_is_right(changed: dict[str, Any]) -> None:
    chosen = values_with(**changed)

    valid(chosen)
    check_all(render(chosen))


def test_values_reach_the_command_lines() -> None:
    objects = render(
        values_with(worker={"queues": "builds:2", "labels": ["gpu"], "slots": 4, "grace": 90}, sidecar={"grace": 5})
    )
    [pod] = [
        each["spec"]["template"]["spec"]
        for each in objects
        if each["metadata"]["name"] == "farm-worker" and each["kind"] == "Deployment"
    ]
    flags = parsed(pod["containers"][0]["args"]).params

    assert (flags["queues"], flags["labels"], flags["slots"], flags["grace"]) == ({"builds": 2}, ("gpu",), 4, 90)
    assert flags["server"] == "http://farm-control-plane"
    assert pod["terminationGracePeriodSeconds"] == 90 + 5 + 30
    assert parsed(pod["initContainers"][0]["args"]).params["agent"] == ["your-agent"]


def test_an_autoscaler_is_left_the_number_of_workers() -> None:
    def replicas(**worker: Any) -> Any:
        [found] = [
            each
            for each in render(values_with(worker=worker))
            if each["metadata"]["name"] == "farm-worker" and each["kind"] == "Deployment"
        ]
        return found["spec"].get("replicas")

    assert (replicas(), replicas(autoscaled=True)) == (2, None)


def test_jobs_may_reach_what_is_said() -> None:
    rule = {"to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}], "ports": [{"protocol": "TCP", "port": 443}]}
    objects = render(values_with(networkPolicy={"workerEgress": [rule]}))
    [policy] = [
        each for each in objects if each["metadata"]["name"] == "farm-worker" and each["kind"] == "NetworkPolicy"
    ]

    assert policy["spec"]["egress"][-1] == rule
    assert not [
        each for each in render(values_with(networkPolicy={"enabled": False})) if each["kind"] == "NetworkPolicy"
    ]


def test_the_versions_are_those_of_the_code() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("image", "tag", "latest"),
        ("image", "repository", "howdah:1"),
        ("worker", "replicas", "2"),
        ("worker", "grace", 0),
        ("worker", "labels", ["a+b"]),
        ("worker", "slotz", 3),
        ("worker", "resources", {}),
        ("controlPlane", "port", 80),
        ("sidecar", "args", ["--token-file=/x"]),
        ("sidecar", "args", ["--host=0.0.0.0"]),
        ("sidecar", "workspace", "much"),
        ("networkPolicy", "clients", {}),
    ],
)
def test_what_cannot_be_is_refused(part: str, name: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        valid(values_with(**{part: {name: value}}))


def test_the_schema_is_one_and_knows_every_value() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for name, part in values().items():
        assert name in SCHEMA["required"]
        if isinstance(part, dict):
            assert (
                set(SCHEMA["properties"][name]["required"])
                == set(part)
                == set(SCHEMA["properties"][name]["properties"])
            )


def test_every_value_is_used_and_every_value_used_is_there() -> None:
    used = {
        name
        for file in (CHART / "templates").glob("*.yaml")
        for name in re.findall(r"\.Values\.([\w.]+)", file.read_text())
    }
    there = {f"{name}.{key}" for name, part in values().items() if isinstance(part, dict) for key in part}
    there |= {name for name, part in values().items() if not isinstance(part, dict)}

    assert used == there


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("{{ if not .Values.a }}x{{ else }}y{{ end }}", "y"),
        ("a\n{{- if .Values.none }}\nb\n{{- end }}\nc", "a\nc"),
        ("{{ add .Values.a 2 3 }}", "6"),
        ("{{ .Values.none | default .Values.a }}", "1"),
        ("x:\n  {{- toYaml .Values.c | nindent 2 }}", "x:\n  d: 1"),
        ("{{ if gt (int .Values.a) 1 }}many{{ end }}", ""),
    ],
)
def test_the_templates_are_read_as_go_reads_them(template: str, made: str) -> None:
    assert expand(template, {"Values": {"a": 1, "none": "", "c": {"d": 1}}}) == made


@pytest.mark.parametrize("template", ["{{ .Values.typo }}", "{{ include `x` . }}", "{{ if .Values.a }}", "{{ end }}"])
def test_what_is_not_understood_is_an_error(template: str) -> None:
    with pytest.raises(AssertionError):
        expand(template, {"Values": {"a": 1}})
