"""What must be true of the objects we give to Kubernetes. Every function says what is wrong by an AssertionError."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
import kubernetes_validate

import howdah.cli
import howdah_agent
import howdah_lab
from howdah import options
from howdah.config import CLASSES, seconds
from howdah.control_plane.routes import ROUTES
from howdah.version import __version__

SOURCES = [Path(package.__file__).parent for package in (howdah, howdah_agent, howdah_lab)]
VERSIONS = ("1.29.0", "1.33.0", "1.37.0")
MARGIN = 10
"""Seconds between the last grace and KILL."""
SECRET = re.compile("DSN|TOKEN|PASSWORD|SECRET|KEY")
Object = Mapping[str, Any]


@cache
def variables() -> frozenset[str]:
    """Every variable the code reads."""
    names = {options.variable(key) for cls in CLASSES for option in options.options_of(cls) for key in option.keys}
    literal = re.compile(r'"(HOWDAH_[A-Z]+(?:_[A-Z]+)*)"')
    files = (file for source in SOURCES for file in source.rglob("*.py"))
    return frozenset(names) | {name for file in files for name in literal.findall(file.read_text())}


def parsed(words: Sequence[str]) -> click.Context:
    """A command line of ours, read as the command itself reads it."""
    command: click.Command = howdah.cli.main
    context = click.Context(command, info_name="howdah")
    rest = list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    return command.make_context(context.info_name, rest, parent=context.parent)


def port_of(context: click.Context) -> int:
    """The port a command listens on."""
    metrics = context.params.get("metrics")
    return int(metrics[1] if metrics else context.params["port"])


def check_all(objects: Sequence[Object]) -> None:
    """All of it."""
    for each in objects:
        check_schema(each)
    for pod, name in pods(objects):
        check_pod(name, pod)
        for container in containers(pod):
            check_container(f"{name}/{container['name']}", container, pod)
        check_grace(name, pod)
    check_selectors(objects)
    check_rollouts(objects)
    check_network(objects)


def check_schema(each: Object) -> None:
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise AssertionError(f"{each['kind']} {each['metadata']['name']}, {version}: {error.message}") from None


def pods(objects: Sequence[Object]) -> Iterator[tuple[Any, str]]:
    for each in objects:
        if each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]["spec"], each["metadata"]["name"]


def containers(pod: Object) -> list[Any]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def check_pod(name: str, pod: Object) -> None:
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True, f"{name} may run as root"
    assert context["runAsUser"] > 0, f"{name} runs as root"
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}, f"{name} has no seccomp profile"
    assert pod["automountServiceAccountToken"] is False, f"{name} can ask the cluster"
    for flag in ("hostNetwork", "hostPID", "hostIPC"):
        assert not pod.get(flag), f"{name} has {flag}"


def check_container(name: str, container: Object, pod: Object) -> None:
    image, _, tag = container["image"].rpartition(":")
    assert image, f"{name}: image without a tag"
    assert tag == __version__, f"{name}: tag {tag!r}, this is {__version__}"
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False, f"{name} may gain privileges"
    assert own["readOnlyRootFilesystem"] is True, f"{name} may write to its image"
    assert own["capabilities"] == {"drop": ["ALL"]}, f"{name} keeps capabilities"
    assert not own.get("privileged"), f"{name} is privileged"
    assert {"cpu", "memory"} <= set(container["resources"]["requests"]), f"{name} does not say what it needs"
    assert "memory" in container["resources"]["limits"], f"{name} may take all memory"
    known = variables()
    for variable in container.get("env", ()):
        assert variable["name"] in known, f"{name}: nobody reads {variable['name']}"
        assert not SECRET.search(variable["name"]) or "value" not in variable, (
            f"{name}: {variable['name']} is in the open"
        )
    volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
    for mount in container.get("volumeMounts", ()):
        assert mount["name"] in volumes, f"{name}: no volume {mount['name']}"
    context = parsed(container["args"])
    if file := context.params.get("token_file"):
        [secret_mount] = [mount for mount in container["volumeMounts"] if file.startswith(f"{mount['mountPath']}/")]
        items = volumes[secret_mount["name"]]["secret"]["items"]
        assert file.removeprefix(f"{secret_mount['mountPath']}/") in [item["path"] for item in items], (
            f"{name}: no {file}"
        )
    check_probes(name, container, context)


def check_probes(name: str, container: Object, context: click.Context) -> None:
    """Whoever serves is asked, at the port it listens on, for what it serves."""
    command = context.info_name
    if command == "migrate":
        return
    served = {
        "serve": {route.path for route in ROUTES},
        "worker": {"/livez", "/readyz", "/metrics"},
        "sidecar": {"/health"},
    }
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    listens = port_of(context)
    for kind in ("startupProbe", "livenessProbe", *(() if command == "sidecar" else ("readinessProbe",))):
        probe = container[kind]
        if "exec" in probe:
            asked = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", probe["exec"]["command"][-1])
            assert asked is not None, f"{name}: {kind} asks nobody"
            port, path = int(asked[1]), asked[2]
        else:
            path, port = probe["httpGet"]["path"], ports.get(probe["httpGet"]["port"], 0)
        assert path in served[str(command)], f"{name}: {kind} asks for {path}"
        assert port == listens, f"{name}: {kind} asks port {port}, it listens on {listens}"
    if command != "sidecar":
        wanted = {"serve": ("/health", "/ready"), "worker": ("/livez", "/readyz")}[str(command)]
        found = tuple(container[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe"))
        assert found == wanted, f"{name}: liveness and readiness are {found}"


def check_grace(name: str, pod: Object) -> None:
    """Kubernetes waits longer than everything in the pod may take, one after the other."""
    needed = 0.0
    for container in containers(pod):
        needed += seconds(parsed(container["args"]).params.get("grace") or 0)
        needed += sum(
            map(int, container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ())[1:])
        )
    given = pod.get("terminationGracePeriodSeconds", 30)
    assert given >= needed + MARGIN, f"{name}: KILL after {given} s, but it may take {needed:g} s"
    for container in pod.get("initContainers", ()):
        assert container.get("restartPolicy") == "Always", (
            f"{name}: {container['name']} would end before the worker starts"
        )


def check_selectors(objects: Sequence[Object]) -> None:
    """Whoever selects pods finds some; a service finds its port."""
    templates = [each["spec"]["template"] for each in objects if each["kind"] in ("Deployment", "Job")]

    def found(labels: Mapping[str, str]) -> list[Any]:
        return [each for each in templates if labels.items() <= each["metadata"]["labels"].items()]

    for each in objects:
        spec, what = each.get("spec", {}), f"{each['kind']} {each['metadata']['name']}"
        if each["kind"] == "Deployment":
            assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(), what
            assert len(found(spec["selector"]["matchLabels"])) == 1, f"{what} selects the pods of others too"
        elif each["kind"] == "PodDisruptionBudget":
            assert len(found(spec["selector"]["matchLabels"])) == 1, f"{what} selects no pods, or too many"
        elif each["kind"] == "NetworkPolicy":
            assert found(spec["podSelector"]["matchLabels"]), f"{what} selects no pods"
        elif each["kind"] == "Service":
            [chosen] = found(spec["selector"]) or [None]
            assert chosen is not None, f"{what} selects no pods"
            names = {port["name"] for container in chosen["spec"]["containers"] for port in container["ports"]}
            assert {port["targetPort"] for port in spec["ports"]} <= names, f"{what} leads to no port"


def check_rollouts(objects: Sequence[Object]) -> None:
    budgets = {each["metadata"]["name"] for each in objects if each["kind"] == "PodDisruptionBudget"}
    for each in objects:
        if each["kind"] == "Deployment":
            wanted = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}
            assert each["spec"]["strategy"] == wanted, f"{each['metadata']['name']} is not replaced one by one"
            assert each["metadata"]["name"] in budgets, f"{each['metadata']['name']} has no disruption budget"


def check_network(objects: Sequence[Object]) -> None:
    """Everybody is shut in; workers reach the control plane and names, the control plane PostgreSQL and names."""
    policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
    shut = [each for each in policies if not each.get("ingress") and not each.get("egress")]
    assert any("app.kubernetes.io/component" not in each["podSelector"]["matchLabels"] for each in shut), (
        "some pods are open"
    )
    assert all(each["policyTypes"] == ["Ingress", "Egress"] for each in policies), "a policy is half open"
    part = "app.kubernetes.io/component"
    for name, wanted in (("worker", {"53", "control-plane"}), ("control-plane", {"53", "5432"})):
        [policy] = [each for each in policies if each["podSelector"]["matchLabels"].get(part) == name]
        assert {_reached(rule, part) for rule in policy["egress"]} == wanted, f"{name} reaches {policy['egress']}"


def _reached(rule: Object, part: str) -> str:
    assert rule.get("to"), "a rule without `to` reaches everybody"
    ports = {str(port["port"]) for port in rule["ports"]}
    [to] = rule["to"]
    labels = to.get("podSelector", {}).get("matchLabels", {})
    return str(labels.get(part) or ",".join(sorted(ports)))
