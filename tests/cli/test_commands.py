"""Every command: what it prints, and how it exits."""

from __future__ import annotations

import asyncio
import doctest
import json

import pytest

from howdah import Poison
from howdah.cli import LAZY, output, parameters
from kit.node import drain

SHOP = """
from howdah import Howdah
app = Howdah()

@app.task(queue="mail", max_attempts=3)
async def send(user_id: int, *, lang: str = "en") -> None: ...
"""


@pytest.fixture
def failed(app):
    """Three failed jobs in queue mail, one done."""

    @app.task(queue="mail")
    async def fail() -> None:
        raise Poison("a\x1b[31m red\nletter")

    @app.task(queue="mail")
    async def work(n: int = 0) -> int:
        return n

    async def make():
        ids = [each.id for each in await app.enqueue_many([fail.job() for _ in range(3)])]
        ids.append((await work.enqueue(5)).id)
        await drain(app)
        await app.close()
        return ids

    return asyncio.run(make())


def test_help_is_there_for_every_command(howdah):
    overview = howdah("--help")
    assert overview.exit_code == 0
    for name, (_, says) in LAZY.items():
        assert name in overview.stdout
        assert says in overview.stdout
    for name in set(LAZY) - {"worker", "dev", "demo", "bench"}:
        result = howdah(name, "--help")
        assert result.exit_code == 0
        assert f"howdah {name}" in result.stdout


def test_examples_in_the_code_are_true():
    for module in (output, parameters):
        assert doctest.testmod(module).failed == 0


def test_jobs_lists_and_pages(howdah, failed):
    assert howdah("jobs", "--state", "running").stdout == "no such jobs\n"
    result = howdah("jobs", "--state", "failed", "--limit", "2")
    rest = howdah("jobs", "--state", "failed", "--limit", "2", "--before", str(failed[1]), "--json")

    heading, first, second = result.stdout.splitlines()
    assert heading.split()[:4] == ["id", "state", "kind", "queue"]
    assert first.split()[:5] == [str(failed[2]), "failed", "fail", "mail", "1/5"]
    assert second.split()[0] == str(failed[1])
    assert "\x1b" not in result.stdout
    assert result.stderr == f"older ones: --before {failed[1]}\n"
    [row] = json.loads(rest.stdout)
    assert (row["id"], row["state"], row["error"]) == (failed[0], "failed", "Poison: a\x1b[31m red\nletter")
    assert row["enqueued_at"].startswith("2")
    assert "T" in row["enqueued_at"]


def test_job_tells_everything(howdah, failed):
    result = howdah("job", str(failed[0]))
    as_json = json.loads(howdah("job", str(failed[3]), "--json").stdout)
    unknown = howdah("job", "999")

    assert result.exit_code == 0
    assert "state         failed\n" in result.stdout
    assert "attempt 1 ended at" in result.stdout
    assert "raise Poison" in result.stdout
    assert "\x1b" not in result.stdout
    assert (as_json["state"], as_json["args"], as_json["result"], as_json["attempts"]) == ("done", {"n": 5}, 5, [])
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "howdah: there is no job 999; it was never enqueued, or pruned since\n"


def test_retry_by_id_and_range(howdah, failed):
    some = howdah("retry", str(failed[0]), f"{failed[2]}-{failed[3]}", "999")
    again = howdah("retry", str(failed[1]), "--json")

    assert some.exit_code == 1
    assert "put back 2 of 4 jobs\n" in some.stdout
    assert "it succeeded" in some.stdout
    assert "there is no such job" in some.stdout
    assert again.exit_code == 0
    assert json.loads(again.stdout) == [{"id": failed[1], "result": "queued"}]


def test_many_at_once_need_a_yes(howdah, failed):
    refused = howdah("retry", "--queue", "mail")
    did = howdah("retry", "--queue", "mail", "--yes")
    cancelled = howdah("cancel", "--all", "--yes", "--limit", "2")

    assert refused.exit_code == 2
    assert "to retry every failed job in queue 'mail', up to 1000, add --yes" in refused.stderr
    assert (did.exit_code, did.stdout) == (0, "put back 3 of 3 jobs\n")
    assert (cancelled.exit_code, cancelled.stdout) == (0, "cancelled 2 of 2 jobs\n")
    assert "there may be more" in cancelled.stderr
    assert len(json.loads(howdah("jobs", "-s", "queued", "--json").stdout)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("retry",),
        ("cancel", "x"),
        ("cancel", "7-3"),
        ("cancel", "1-9999999"),
        ("cancel", "7", "--queue", "mail"),
        ("jobs", "--state", "lost"),
        ("jobs", "--limit", "5000"),
        ("job", "seven"),
        ("prune", "--done-after", "soon"),
        ("pause",),
        ("enqueue",),
        ("completion", "csh"),
        ("nothing",),
    ],
)
def test_what_is_not_understood_exits_2(howdah, words):
    result = howdah(*words)

    assert result.exit_code == 2
    assert result.stderr
    assert result.stdout == ""


def test_enqueue_as_is(howdah):
    made = howdah(
        "enqueue",
        "send",
        '{"n": 1}',
        "-q",
        "mail",
        "-p",
        "5",
        "--key",
        "k",
        "--meta",
        '{"a": 1}',
        "--max-attempts",
        "2",
        "--timeout",
        "1m",
        "--delay",
        "15m",
    )
    same = howdah("enqueue", "send", "--key", "k", "--json")
    at = howdah("enqueue", "send", "--run-at", "2040-01-31T12:00:00+01:00")

    row = json.loads(howdah("job", "1", "--json").stdout)
    assert made.stdout == "enqueued job 1\n"
    assert json.loads(same.stdout) == {"id": 1, "fresh": False}
    assert (row["args"], row["queue"], row["priority"], row["key"]) == ({"n": 1}, "mail", 5, "k")
    assert (row["meta"], row["max_attempts"], row["timeout"]) == ({"a": 1}, 2, 60.0)
    assert at.exit_code == 0
    assert "run at        2040-01-31 11:00:00Z" in howdah("job", at.stdout.split()[-1]).stdout


def test_enqueue_with_an_app_checks_the_arguments(howdah, nowhere):
    (nowhere / "shop_cli.py").write_text(SHOP)

    made = howdah("enqueue", "send", "[7]", "-a", "shop_cli")
    named = howdah("enqueue", "send", '{"user_id": 7, "lang": "de"}', HOWDAH_APP="shop_cli:app")
    wrong = howdah("enqueue", "send", '{"user": 7}', "-a", "shop_cli")
    kind = howdah("enqueue", "sned", "-a", "shop_cli")
    own = howdah("enqueue", "howdah:prune", '{"done": 60}', "-a", "shop_cli")

    row = json.loads(howdah("job", made.stdout.split()[-1], "--json").stdout)
    assert (row["args"], row["queue"], row["max_attempts"]) == ({"user_id": 7}, "mail", 3)
    assert named.exit_code == 0
    assert (wrong.exit_code, kind.exit_code, own.exit_code) == (2, 2, 2)
    assert wrong.stderr.startswith("howdah: task 'send' cannot be called with these arguments: ")
    assert kind.stderr == "howdah: the app has no task 'sned'; it has send\n"
    assert own.stderr.startswith("howdah: kinds that start with 'howdah:' are Howdah's own")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("send", "{"), "ARGS-JSON is not JSON"),
        (("send", "[1]"), "arguments by position need the app"),
        (("send", "--meta", "[1]"), "--meta must be a JSON object"),
        (("send", "--run-at", "tomorrow"), "--run-at must be a time with its zone"),
        (("send", "--run-at", "2040-01-01"), "--run-at must be a time with its zone"),
        (("send", "-p", "1000"), "priority must be from -100 to 100, got 1000"),
        (("se\nnd",), "kind must be 1 to 100 printable characters"),
        (("send", '{"a": "\\u0000"}'), "holds a NUL character"),
    ],
)
def test_enqueue_refuses_what_cannot_be(howdah, words, message):
    result = howdah("enqueue", *words)

    assert result.exit_code == 2
    assert message in result.stderr
    assert howdah("jobs").stdout == "no such jobs\n"


def test_queues_pause_and_resume(howdah, failed):
    howdah("enqueue", "send", "-q", "mail")
    paused = howdah("pause", "mail", "bulk", "--by", "ada")
    listed = howdah("queues")
    as_json = json.loads(howdah("queues", "--json").stdout)
    resumed = howdah("resume", "mail", "nope")

    assert paused.stdout == "queue 'mail' is paused\nqueue 'bulk' is paused\n"
    assert paused.stderr == "no job was ever in queue 'bulk'; is it spelled right? `howdah queues`\n"
    assert listed.stdout.splitlines()[2].split()[:5] == ["mail", "1", "0", "0", "0s"]
    assert "by ada" in listed.stdout
    assert [(queue["name"], queue["paused"]) for queue in as_json] == [("bulk", True), ("mail", True)]
    assert resumed.exit_code == 1
    assert resumed.stdout == "queue 'mail' is resumed\nqueue 'nope' was not paused\n"


def test_nodes(howdah, failed):
    assert howdah("nodes").stdout == "no nodes; start one with `howdah worker`\n"
    [node] = json.loads(howdah("nodes", "--all", "--json").stdout)
    assert (node["state"], node["slots"]) == ("offline", 50)
    assert {"fail", "work"} <= set(node["kinds"])
    assert "offline" in howdah("nodes", "--all").stdout


def test_prune(howdah, failed):
    kept = howdah("prune")
    some = howdah("prune", "--done-after", "0s", "--yes", "--json")
    rest = howdah("prune", HOWDAH_RETENTION_FAILED="0s")

    assert kept.stdout == "pruned 0 jobs, 0 whole partitions among them\n"
    assert json.loads(some.stdout) == {"partitions": 0, "jobs": 1}
    assert rest.stdout == "pruned 3 jobs, 0 whole partitions among them\n"


def test_completion_scripts(howdah):
    for shell in ("bash", "zsh", "fish"):
        result = howdah("completion", shell)
        assert (result.exit_code, "_HOWDAH_COMPLETE" in result.stdout) == (0, True)
    words = howdah(_HOWDAH_COMPLETE="bash_complete", COMP_WORDS="howdah re", COMP_CWORD="1")
    assert words.stdout.split() == ["plain,reprioritize", "plain,resume", "plain,retry"]
