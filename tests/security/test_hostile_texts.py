"""Texts that rows hold: JSON that Python cannot hold breaks no page, and terminals execute nothing of a job's error."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from control_plane.conftest import serving
from dashboard.conftest import READ
from howdah import Howdah, config
from howdah.observe.logs import TextLines, configure
from howdah.webhooks.post import is_public
from security.test_sessions import dashboard
from security.user_interfaces import follow, pages

pytestmark = pytest.mark.anyio
DEEP = "[" * 3000 + "]" * 3000
UNREADABLE = {"a number out of range": '{"n": 1e999, "password": "hunter2-hunter2"}', "deep": f'{{"x": {DEEP}}}'}
ESCAPES = "\x1b]0;owned\x07 \x9b2J \x1b[31mred\r\x08"


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_unreadable_json_breaks_no_page_and_hides_its_secrets(app: Howdah, conn: Any, text: str) -> None:
    data = text.encode()
    await conn.execute("select howdah.enqueue('noop', $1::json, meta => $1::json)", data)
    await conn.execute(
        "select howdah.append('Order-1', json_build_array(json_build_object('type', 'Odd', 'data', $1::json)))", data
    )
    await conn.execute(
        "insert into howdah.run (job, attempt, kind, spec, result) values (1, 1, 'noop', $1::json, $1::json)",
        data,
    )
    async with dashboard(app, read_password=READ) as browser:
        await browser.sign_in(READ)
        answers = await follow(browser.http, pages())
    for address, answer in answers.items():
        assert answer.status_code < 500, (address, answer.text[-300:])
        assert "hunter2" not in answer.text, address
    assert answers["/dashboard/log"].status_code == 200
    assert answers["/dashboard/jobs/1"].status_code == 200

    async with serving(app) as plane:
        for path in ("/jobs/1", "/jobs/1/runs"):
            answer = await plane.get(path)
            assert answer.status == 200, answer.body
            assert b"hunter2" not in answer.content


def test_terminals_execute_nothing_of_a_log_line() -> None:
    try:
        raise ValueError(ESCAPES)
    except ValueError as error:
        record = logging.makeLogRecord(
            {"msg": "job 1 failed: %s", "args": (ESCAPES,), "exc_info": (ValueError, error, error.__traceback__)}
        )
    line = TextLines("%(levelname)s %(message)s").format(record)

    assert not [char for char in line if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160]
    assert "\\x1b]0;owned\\x07 \\x9b2J" in line


def test_nor_on_a_real_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream, root = Terminal(), logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        configure("INFO", stream=stream)
        logging.getLogger("howdah").warning("job 1 failed: %s", ESCAPES)
    finally:
        root.handlers[:] = before
        root.setLevel(level)

    assert "owned" in stream.getvalue()
    assert "\x1b]0;" not in stream.getvalue()
    assert "\x9b" not in stream.getvalue()


@pytest.mark.parametrize(
    "address", ["192.0.0.192", "192.0.0.1", "100.100.100.200", "168.63.129.16", "198.18.0.1", "3fff::1"]
)
def test_addresses_that_some_versions_of_python_count_as_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["howdah.toml", "pyproject.toml"])
def test_settings_of_another_user_in_a_folder_above_are_not_read(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = 'app = "evil:app"\n' if name == "howdah.toml" else '[tool.howdah]\napp = "evil:app"\n'
    (tmp_path / name).write_text(text)
    here = tmp_path / "work" / "deeper"
    here.mkdir(parents=True)
    assert config.find(start=here) == tmp_path / name, "the control: a file of this user"

    os.chown(tmp_path / name, 54321, 54321)
    assert config.find(start=here) is None
    assert config.find(start=tmp_path) == tmp_path / name, "who works in this folder means this file"
    os.chown(here, 54321, 54321)
    assert config.find(start=here) == tmp_path / name, "all of this project belongs to that user"
    assert ("is not read: it belongs to another user" in caplog.text) is (name == "howdah.toml")
