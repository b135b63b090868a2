"""deploy/kubernetes: what is there fits together, and fits the code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import check_all, parsed

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"


def objects() -> list[Any]:
    files = sorted(file for file in FOLDER.glob("*.yaml") if file.name != "kustomization.yaml")
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def find(objects: list[Any], kind: str, name: str) -> Any:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, f"howdah-{name}")]
    return found


def pod(objects: list[Any], name: str) -> Any:
    return find(objects, "Deployment", name)["spec"]["template"]["spec"]


def test_all_of_it_is_right() -> None:
    check_all(objects())


def test_kustomize_takes_every_file_but_the_migration() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())

    there = {file.name for file in FOLDER.glob("*.yaml")} - {"kustomization.yaml", "migrate.yaml"}
    assert set(listed["resources"]) == there
    assert {each["metadata"].get("namespace", "howdah") for each in objects()} == {listed["namespace"]}


def test_the_worker_talks_to_the_service() -> None:
    [worker] = pod(objects(), "worker")["containers"]
    service = find(objects(), "Service", "control-plane")

    assert parsed(worker["args"]).params["server"] == f"http://{service['metadata']['name']}"
    assert service["spec"]["ports"][0]["port"] == 80


def change(path: str, value: Any) -> Callable[[Any], None]:
    """Put a value somewhere; ``None`` takes it away."""

    def act(there: Any) -> None:
        *steps, last = (step.replace("~", ".") for step in path.split("."))
        for step in steps:
            there = there[int(step)] if step.isdigit() else there[step]
        if value is None:
            del there[last]
        elif last.isdigit():
            there[int(last)] = value
        else:
            there[last] = value

    return act


TEMPLATE = "spec.template.spec"
BROKEN = [
    ("worker", f"{TEMPLATE}.terminationGracePeriodSeconds", 30, "KILL after 30 s"),
    ("worker", f"{TEMPLATE}.containers.0.args.3", "--grace=1h", "KILL after 650 s"),
    ("worker", f"{TEMPLATE}.containers.0.args.3", "--gracious=1h", "No such option"),
    ("worker", f"{TEMPLATE}.containers.0.args.3", "--grace=soon", "not a duration"),
    ("worker", f"{TEMPLATE}.containers.0.args.2", "--token-file=/nowhere/token", ""),
    ("worker", f"{TEMPLATE}.containers.0.image", "howdah:latest", "tag 'latest'"),
    ("worker", f"{TEMPLATE}.containers.0.image", "howdah", "without a tag"),
    ("worker", f"{TEMPLATE}.containers.0.livenessProbe.httpGet.path", "/alive", "asks for /alive"),
    ("worker", f"{TEMPLATE}.containers.0.livenessProbe.httpGet.path", "/readyz", "liveness and readiness"),
    ("worker", f"{TEMPLATE}.containers.0.livenessProbe.httpGet.port", "http", "asks port 0"),
    ("worker", f"{TEMPLATE}.containers.0.ports.0.containerPort", 9101, "it listens on 9100"),
    ("worker", f"{TEMPLATE}.containers.0.env.0.name", "HOWDAH_APPLICATION", "nobody reads"),
    ("worker", f"{TEMPLATE}.containers.0.securityContext.readOnlyRootFilesystem", False, "may write to its image"),
    ("worker", f"{TEMPLATE}.containers.0.securityContext.capabilities.drop", ["NET_RAW"], "keeps capabilities"),
    ("worker", f"{TEMPLATE}.containers.0.resources.limits", {}, "may take all memory"),
    ("worker", f"{TEMPLATE}.containers.0.volumeMounts.0.name", "tokens", "no volume tokens"),
    ("worker", f"{TEMPLATE}.initContainers.0.restartPolicy", None, "would end before the worker starts"),
    ("worker", f"{TEMPLATE}.initContainers.0.args.1", "--port=8078", "it listens on 8078"),
    ("worker", f"{TEMPLATE}.securityContext.runAsNonRoot", False, "may run as root"),
    ("worker", f"{TEMPLATE}.hostNetwork", True, "hostNetwork"),
    ("worker", f"{TEMPLATE}.containers.0.commands", ["sh"], "Additional properties"),
    ("worker", "spec.template.metadata.labels", {"app.kubernetes.io/name": "other"}, ""),
    ("worker", "spec.strategy.rollingUpdate.maxUnavailable", 1, "one by one"),
    ("worker", "spec.replicas", "two", "is not of type"),
    ("control-plane", f"{TEMPLATE}.containers.0.args.0", "server", "there is no command 'server'"),
    ("control-plane", f"{TEMPLATE}.containers.0.args.6", "sometimes", "is not one of"),
    (
        "control-plane",
        f"{TEMPLATE}.containers.0.env.0",
        {"name": "HOWDAH_DSN", "value": "postgresql://"},
        "in the open",
    ),
    ("control-plane", f"{TEMPLATE}.automountServiceAccountToken", True, "can ask the cluster"),
]


@pytest.mark.parametrize(("name", "path", "value", "message"), BROKEN)
def test_what_is_wrong_is_noticed(name: str, path: str, value: Any, message: str) -> None:
    broken = copy.deepcopy(objects())
    change(path, value)(find(broken, "Deployment", name))

    with pytest.raises(Exception) as raised:
        check_all(broken)
    assert message in str(raised.value) or message in getattr(raised.value, "message", "")


@pytest.mark.parametrize(
    ("kind", "name", "path", "value", "message"),
    [
        ("Service", "control-plane", "spec.ports.0.targetPort", "https", "leads to no port"),
        ("Service", "control-plane", "spec.selector", {"app": "x"}, "selects no pods"),
        ("PodDisruptionBudget", "worker", "spec.selector.matchLabels", {"app": "x"}, "selects no pods"),
        ("NetworkPolicy", "worker", "spec.podSelector.matchLabels", {"app": "x"}, "selects no pods"),
        ("NetworkPolicy", "worker", "spec.egress", [{}], "reaches everybody"),
        ("NetworkPolicy", "worker", "spec.policyTypes", ["Ingress"], "half open"),
        ("NetworkPolicy", "control-plane", "spec.egress.1.ports.0.port", 443, "control-plane reaches"),
        ("NetworkPolicy", "nobody", "spec.podSelector.matchLabels.app~kubernetes~io/component", "worker", "are open"),
    ],
)
def test_what_is_wrong_elsewhere_is_noticed(kind: str, name: str, path: str, value: Any, message: str) -> None:
    broken = copy.deepcopy(objects())
    change(path, value)(find(broken, kind, name))

    with pytest.raises(AssertionError, match=message):
        check_all(broken)
