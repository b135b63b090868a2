"""docs/howto/webhooks.md: its shell lines tell our messages from others'."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from howdah.webhooks.signature import sign

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "webhooks.md"
SECRET, BODY, AT = "a secret of some length", b'{"id": "7", "message": "it\'s\\n"}', 1_700_000_000


@pytest.mark.parametrize(
    ("signature", "body", "ours"),
    [
        (sign([SECRET], AT, BODY), BODY, True),
        (sign(["another one of ours", SECRET], AT, BODY), BODY, True),
        (sign([SECRET], AT, BODY), BODY + b"\n", False),
        (sign([SECRET], AT + 1, BODY), BODY, False),
        ("", BODY, False),
    ],
    ids=["ours", "one of two", "another body", "another moment", "none"],
)
def test_the_shell_lines_verify(tmp_path, signature, body, ours):
    [script] = re.findall(r"^```sh\n(wanted=.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "body.json").write_bytes(body)
    ran = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "timestamp": str(AT), "secret": SECRET, "signature": signature},
        capture_output=True,
        text=True,
    )
    assert (ran.stdout.strip(), ran.returncode) == (("ours", 0) if ours else ("not ours", 1)), ran.stderr
