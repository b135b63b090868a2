"""What `howdah worker --server` is told at its start: tokens, URLs, certificates, labels."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from howdah.control_plane.tokens import make
from howdah.postgres.database import Database
from kit.command import Command, Jobs
from kit.serve_process import ControlPlaneProcesses, free_port, workers


@pytest.fixture
def processes(database: Database, direct: Database, tmp_path: Path) -> Iterator[ControlPlaneProcesses]:
    with ExitStack() as stack:
        yield ControlPlaneProcesses(database, direct, stack, tmp_path / "notes")


def test_a_token_may_be_in_a_file_and_one_on_the_command_line_is_warned_about(
    processes: ControlPlaneProcesses, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(processes.token + "\n")
    by_file = processes.worker("--token-file", str(file), HOWDAH_TOKEN="")
    by_file.says("works for")
    assert "command line" not in by_file.output
    by_flag = processes.worker("--token", processes.token, HOWDAH_TOKEN="", HOWDAH_TOKEN_FILE="/no/such/file")
    by_flag.says("works for")
    assert "a token on the command line can be seen by every user of this machine" in by_flag.output
    assert processes.token not in by_flag.output


@pytest.mark.parametrize(
    ("words", "environment", "code", "message"),
    [
        (("--server", "nowhere"), {}, 2, "the server is a URL such as"),
        (("--token", "hwd_api_x"), {}, 2, "no token of ours; was it cut or mistyped?"),
        (("--token-file", "/no/such/file"), {}, 2, "the token cannot be read"),
        (("--token-file", "/dev/null"), {}, 2, "holds no token of ours"),
        (("--ca", "/no/such/file", "--server", "https://127.0.0.1:1"), {}, 2, "cannot be used"),
        (("--label", "a+b"), {}, 2, "a label is 1 to 50 printable characters"),
        (("-a", "kit.nothing"), {}, 2, "there is no module 'kit.nothing'"),
        (("--wait", "1s", "--server", "http://127.0.0.1:9"), {}, 3, "at http://127.0.0.1:9 does not answer"),
        (("--token", "UNKNOWN"), {}, 2, "the token is unknown, expired or revoked"),
        ((), {"HOWDAH_TOKEN": ""}, 2, "send a token"),
    ],
)  # fmt: skip
def test_what_cannot_work_says_so_and_ends(
    processes: ControlPlaneProcesses, words: tuple[str, ...], environment: dict[str, str], code: int, message: str
) -> None:
    unknown = make()
    worker = processes.worker(*(unknown if word == "UNKNOWN" else word for word in words), **environment)

    assert worker.ends() == code, worker.output
    assert message in worker.output
    assert "Traceback" not in worker.output


def test_a_signal_while_it_waits_for_the_control_plane_ends_it_with_code_0(processes: ControlPlaneProcesses) -> None:
    worker = processes.worker("--wait", "1m", server=f"http://127.0.0.1:{free_port()}")
    worker.says("registration failed")
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0


def test_it_waits_for_a_control_plane_that_comes_later(processes: ControlPlaneProcesses) -> None:
    port = free_port()
    worker = processes.worker(server=f"http://127.0.0.1:{port}")
    worker.says("registration failed")
    processes.serve(port=port)

    worker.says("works for")
    processes.becomes(processes.enqueue("traced"), "done")


def test_settings_name_the_control_plane_too(processes: ControlPlaneProcesses, tmp_path: Path) -> None:
    (tmp_path / "howdah.toml").write_text(
        f'app = "kit.remote_app:app"\nserver = "{processes.url}"\nlabels = ["gpu", "big"]\ntoken_file = "token"\n'
    )
    (tmp_path / "token").write_text(processes.token)
    with Command("worker", folder=tmp_path) as worker:
        worker.says("works for")
        [node] = workers(processes.url, processes.token, "idle")
        assert node["labels"] == ["gpu", "big"]
        processes.becomes(processes.enqueue("render"), "done")


def test_tls_is_checked_against_the_authority_that_is_named(processes: ControlPlaneProcesses, tmp_path: Path) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=howdah"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words.split(), *extra], check=True, capture_output=True, timeout=30)
    control = processes.serve("--cert", str(cert), "--key", str(key))

    trusting = processes.worker("--ca", str(cert), server=control.url)
    trusting.says("works for https://")
    processes.becomes(processes.enqueue("traced"), "done")
    doubting = processes.worker("--wait", "1s", server=control.url)
    assert doubting.ends() == 3
    assert "certificate verify failed" in doubting.output


def test_a_node_with_a_database_takes_labels_too(
    processes: ControlPlaneProcesses, database: Database, direct: Database
) -> None:
    id = processes.enqueue("render")
    processes.conn.execute("update howdah.job set queue = queue where id = %s", (id,))
    jobs = Jobs(direct.dsn)
    with Command("worker", "-a", "kit.remote_app:app", "--label", "gpu", "--drain", dsn=database.dsn) as worker:
        assert worker.ends() == 0
    assert jobs.all() == ["done"]
    jobs.close()
