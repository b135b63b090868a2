"""`howdah token`: shown once, listed without themselves, revoked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

from howdah.control_plane.tokens import fingerprint, is_token
from kit.roles import owner


def test_a_token_is_printed_alone_and_only_its_hash_is_kept(howdah, direct):
    made = howdah("token", "create", "build-box", "--scope", "work", "--scope", "read", "--queue", "builds")
    token = made.stdout.strip()

    assert made.exit_code == 0
    assert is_token(token, "api")
    assert made.stderr.startswith("token 1 (build-box): read, work; queues builds; until it is revoked")
    assert token not in made.stderr

    async def kept():
        conn = await direct.connect("test")
        try:
            return await conn.fetchrow("select * from howdah.api_token")
        finally:
            await conn.close()

    row = asyncio.run(kept())
    assert row["hash"] == fingerprint(token)
    assert token not in str(dict(row))
    assert row["hint"] == token[:12]


def test_the_shell_takes_it_as_a_value(database, nowhere):
    command = f"{sys.executable} -m howdah token create ci --scope enqueue --expires 30d --dsn '{owner(database).dsn}'"
    script = f'TOKEN=$({command} 2>/dev/null); printf %s "$TOKEN"'
    result = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=60)

    assert is_token(result.stdout, "api"), result.stderr


def test_json_says_everything_at_once(howdah):
    made = json.loads(howdah("token", "create", "ci", "--scope", "admin", "--expires", "30d", "--json").stdout)

    assert is_token(made["token"])
    assert (made["name"], made["scopes"], made["queues"]) == ("ci", ["admin"], None)
    lives = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert abs(lives - timedelta(days=30)) < timedelta(seconds=5)


def test_the_list_shows_them_all_but_not_themselves(howdah):
    assert "no tokens; make one" in howdah("token", "list").stdout
    tokens = [howdah("token", "create", f"t{n}", "--scope", "work").stdout.strip() for n in range(2)]
    howdah("token", "revoke", "1")

    shown, rows = howdah("token", "list").stdout, json.loads(howdah("token", "list", "--json").stdout)
    assert [(row["id"], row["name"], row["revoked_at"] is None) for row in rows] == [(2, "t1", True), (1, "t0", False)]
    assert shown.splitlines()[1].split()[:2] == ["2", "t1"]
    assert "revoked" in shown.splitlines()[2]
    assert not any(token in shown or token in json.dumps(rows) for token in tokens)


def test_what_is_revoked_stays_so(howdah):
    howdah("token", "create", "t", "--scope", "work")
    first = howdah("token", "revoke", "1")
    when = json.loads(howdah("token", "list", "--json").stdout)[0]["revoked_at"]

    assert first.stdout == "token 1 is revoked\n"
    assert howdah("token", "revoke", "1").exit_code == 0
    assert json.loads(howdah("token", "list", "--json").stdout)[0]["revoked_at"] == when


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "t"), "Missing option '--scope'"),
        (("create", "t", "--scope", "root"), "Invalid value for '--scope'"),
        (("create", "", "--scope", "work"), "token name"),
        (("create", "t", "--scope", "work", "--expires", "0"), "cannot expire after"),
        (("create", "t", "--scope", "work", "--expires", "soon"), "is not a duration"),
        (("create", "t", "--scope", "work", "--queue", "\n"), "queue"),
        (("revoke", "7"), "there is no token 7"),
        (("revoke", "x"), "not a valid integer"),
    ],
)
def test_what_cannot_be_is_refused_with_code_2(howdah, words, message):
    result = howdah("token", *words)

    assert result.exit_code == 2
    assert message in result.output
    assert json.loads(howdah("token", "list", "--json").stdout) == []


def test_without_a_schema_it_ends_with_code_4(howdah):
    assert howdah("token", "list", "--schema", "elsewhere").exit_code == 4
