"""deploy/compose.yaml and the Dockerfile: commands are ours, nothing secret is in them, grace fits."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.image_pins import FILES, content, needed, pins
from deploy.manifests import SECRET, parsed, port_of, variables
from howdah.config import seconds
from howdah.version import __version__

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("howdah")]


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each on one line."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


DOCKERFILE = instructions((DEPLOY / "Dockerfile").read_text())


def test_the_parts_are_all_there() -> None:
    assert set(OURS) == {"migrate", "control-plane", "node", "worker-1", "sidecar-1", "worker-2", "sidecar-2"}


@pytest.mark.parametrize("name", OURS)
def test_commands_and_variables_are_ours(name: str) -> None:
    service = SERVICES[name]
    context = parsed(service["command"])

    assert set(service["environment"]) <= variables()
    for variable, value in service["environment"].items():
        assert not SECRET.search(variable) or "${" in value, f"{variable} is in the open"
    grace = seconds(context.params.get("grace") or 0)
    assert seconds(service.get("stop_grace_period", "10s")) >= grace + (9 if grace else 0)
    assert service["image"].endswith(f":{__version__}")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("name", OURS)
def test_health_is_asked_where_it_is_served(name: str) -> None:
    service, context = SERVICES[name], parsed(SERVICES[name]["command"])
    if name == "migrate":
        assert service["healthcheck"] == {"disable": True}
        return
    wanted = {"worker": "/livez", "serve": "/health", "sidecar": "/health"}[str(context.info_name)]
    test = service["healthcheck"]["test"][-1] if "healthcheck" in service else dict(DOCKERFILE)["HEALTHCHECK"]
    if "healthcheck" not in service:
        test = next(rest for word, rest in DOCKERFILE if word == "HEALTHCHECK")
    port = port_of(context)

    assert f"http://127.0.0.1:{port}{wanted}" in test


def test_whoever_is_waited_for_can_be() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} waits for {other}"
            if how["condition"] == "service_completed_successfully":
                assert SERVICES[other]["restart"] == "no", f"{other} never completes"
    assert SERVICES["grants"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert "grants" in SERVICES["control-plane"]["depends_on"]
    assert "grants" in SERVICES["node"]["depends_on"]


def test_workers_are_not_in_the_network_of_the_database() -> None:
    assert COMPOSE["networks"]["database"] == {"internal": True}
    for number in "12":
        worker, sidecar = SERVICES[f"worker-{number}"], SERVICES[f"sidecar-{number}"]
        assert worker["network_mode"] == f"service:sidecar-{number}"
        assert f"sidecar-{number}" in worker["depends_on"], "so the worker ends first"
        assert sidecar["networks"] == ["fleet"]
        assert "HOWDAH_DSN" not in worker["environment"]
    assert SERVICES["postgres"]["networks"] == ["database"]
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))


def test_each_has_its_own_role() -> None:
    used = {
        name: re.findall(r"//(\w+):", SERVICES[name]["environment"]["HOWDAH_DSN"])
        for name in ("migrate", "control-plane", "node")
    }

    assert used == {"migrate": ["howdah_owner"], "control-plane": ["howdah_fleet"], "node": ["howdah_worker"]}
    script = COMPOSE["configs"]["passwords"]["content"]
    assert re.search(r"for role in owner worker fleet;", script)


def test_each_role_has_its_own_password() -> None:
    """One password for all roles would let every part log in as the owner, or as the superuser."""
    used = {
        name: set(re.findall(r"\$\{(\w+)", str(SERVICES[name]["environment"])))
        - {"HOWDAH_SIDECAR_TOKEN", "FLEET_TOKEN"}
        for name in SERVICES
    }
    everything = {"POSTGRES_PASSWORD", "OWNER_PASSWORD", "WORKER_PASSWORD", "FLEET_PASSWORD"}

    assert used.pop("postgres") == everything
    assert used == {
        "migrate": {"OWNER_PASSWORD"},
        "grants": {"OWNER_PASSWORD"},
        "control-plane": {"FLEET_PASSWORD"},
        "node": {"WORKER_PASSWORD"},
        **{name: set() for name in ("worker-1", "worker-2", "sidecar-1", "sidecar-2")},
    }


def test_the_script_gives_each_role_its_password(tmp_path: Path) -> None:
    """Run with a psql that writes down how it is called."""
    (tmp_path / "psql").write_text('#!/bin/bash\necho "$* $(cat)" >> "$0.log"\n')
    (tmp_path / "psql").chmod(0o755)
    script = COMPOSE["configs"]["passwords"]["content"].replace("$$", "$")
    passwords = {f"{role}_PASSWORD": f"of the {role.lower()}" for role in ("OWNER", "WORKER", "FLEET")}
    subprocess.run(["bash", "-c", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin", **passwords}, check=True)

    lines = (tmp_path / "psql.log").read_text().splitlines()
    assert [re.findall(r"secret=(.*) -d shop alter role (\w+) ", line) for line in lines] == [
        [(f"of the {role}", f"howdah_{role}")] for role in ("owner", "worker", "fleet")
    ]


def test_files_that_are_mounted_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).exists(), source
    assert (DEPLOY / COMPOSE["x-howdah"]["build"]["context"] / COMPOSE["x-howdah"]["build"]["dockerfile"]).exists()


# -------------------------------------------------------------------- the image


def test_bases_are_pinned_and_stages_exist() -> None:
    stages: set[str] = set()
    for word, rest in DOCKERFILE:
        if word == "FROM":
            base, _, stage = rest.partition(" AS ")
            assert base in stages or re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*", base), f"{base} is not pinned"
            stages.add(stage)
    assert {"build", "howdah", "sidecar"} <= stages
    assert DOCKERFILE[-1] == ("FROM", "howdah"), "built by default"
    assert SERVICES["sidecar-1"]["build"]["target"] in stages
    for word, rest in DOCKERFILE:
        if word == "COPY" and (found := re.match(r"--from=(\S+)", rest)):
            assert found[1] in stages


@pytest.mark.parametrize("file", FILES)
def test_what_is_installed_is_pinned_with_hashes(file: str) -> None:
    text = (DEPLOY / file).read_text()

    assert text == content(file), "run scripts/image-pins"
    assert all("--hash=sha256:" in block for block in pins(text).values())
    assert needed(FILES[file]) <= set(pins(text))
    [install] = [rest for word, rest in DOCKERFILE if word == "RUN" and "pip install" in rest]
    assert f"pip install --require-hashes --no-deps -r deploy/{file}" in install
    for command in re.findall(r"pip (?:install|wheel) [^&]*", install):
        assert "--require-hashes" in command or "--no-index" in command, command


def test_it_runs_as_nobody_special() -> None:
    users = [rest for word, rest in DOCKERFILE if word == "USER"]

    assert users == ["10001:10001", "root", "10001:10001"], "root only to install, in between"


def test_howdah_is_what_runs() -> None:
    entry = [json.loads(rest) for word, rest in DOCKERFILE if word == "ENTRYPOINT"]
    assert entry == [["howdah"]]
    for word, rest in DOCKERFILE:
        if word == "CMD":
            parsed(json.loads(rest))


def test_there_is_a_health_check_for_what_runs_by_default() -> None:
    checks = [re.search(r"127\.0\.0\.1:(\d+)(/\w+)", rest) for word, rest in DOCKERFILE if word == "HEALTHCHECK"]
    ports = [str(parsed(json.loads(rest)).params["port"]) for word, rest in DOCKERFILE if word == "CMD"]

    assert [check and (check[1], check[2]) for check in checks] == [(port, "/health") for port in ports]


def test_nothing_secret_gets_in() -> None:
    for word, rest in DOCKERFILE:
        assert word not in ("ENV", "ARG") or not SECRET.search(rest.replace("PYTHON", "")), rest
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name for word, rest in DOCKERFILE if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    assert "*" in ignored
    assert copied == allowed


def test_every_command_of_the_image_is_installed_from_the_files_copied(tmp_path: Path) -> None:
    """`sidecar` and `serve` belong to different distributions; both must be among what the build stage installs."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for word, rest in DOCKERFILE:
        if word == "COPY" and "--from" not in rest:
            for name in rest.split()[:-1]:
                copy = shutil.copytree if (DEPLOY.parent / name).is_dir() else shutil.copy
                (source / name).parent.mkdir(exist_ok=True)
                copy(DEPLOY.parent / name, source / name)
    [install] = [shlex.split(rest) for word, rest in DOCKERFILE if word == "RUN" and "pip install" in rest]
    projects = [re.sub(r"\[.*\]$", "", each) for each in install if each.startswith(".")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", target, *projects], cwd=source, check=True)
    # the source folders of the development environment are taken off the path
    path = "import sys; sys.path = [each for each in sys.path if not each.endswith('/src')]"
    program = f"{path}; from howdah.cli import main; main()"
    for word, rest in DOCKERFILE:
        if word == "CMD":
            ran = subprocess.run(
                [sys.executable, "-c", program, json.loads(rest)[0], "--help"],
                cwd=tmp_path,
                env={"PYTHONPATH": str(target)},
                capture_output=True,
                text=True,
            )
            assert ran.returncode == 0, ran.stderr
            assert ran.stdout.startswith("Usage:"), ran.stdout
