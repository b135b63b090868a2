"""Redact: what people see of values and texts, whatever the application says and however it fails."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest

from howdah import ConfigError, config
from howdah.jobs.rows import AttemptRow, JobRow, shown
from howdah.outcome import FailureReport
from howdah.redact import Redact
from howdah.secrets import MARK

AT = datetime(2030, 1, 1, tzinfo=UTC)


def row(**facts: Any) -> JobRow:
    blank = dict.fromkeys(JobRow.__struct_fields__)
    known = {"id": 1, "kind": "charge", "queue": "q", "attempts": (), "cancel_asked": False, "enqueued_at": AT}
    return JobRow(**{**blank, **known, **facts})


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "db_passwd",
        "clientSecret",
        "token",
        "accessToken",
        "api_key",
        "apikey",
        "API-Key",
        "authorization",
        "cookie",
        "Set-Cookie",
    ],
)
def test_values_of_telling_keys_are_hidden_at_any_depth(key):
    assert Redact()([{"a": {key: {"x": 1}, "b": 2, "c": [{key: None}]}}]) == [
        {"a": {key: "***", "b": 2, "c": [{key: None}]}}
    ]


def test_texts_among_the_values_are_scrubbed():
    assert Redact()({"dsn": "postgresql://me:pw@db", "n": 1.5}) == {"dsn": "postgresql://me:***@db", "n": 1.5}


def test_other_keys_can_be_named_and_none():
    value = {"password": 1, "ssn": 2}

    assert Redact("^ssn$")(value) == {"password": 1, "ssn": "***"}
    assert Redact("")(value) == value
    with pytest.raises(ConfigError, match="is not a regular expression of keys"):
        Redact("(")


def test_the_settings_name_the_keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "howdah.toml").write_text('redact = "iban"')
    assert config.load().redaction()({"IBAN": 1, "token": 2}) == {"IBAN": "***", "token": 2}
    monkeypatch.setenv("HOWDAH_REDACT", "bic")
    assert config.load().redaction()({"iban": 1, "bic": 2}) == {"iban": 1, "bic": "***"}
    monkeypatch.setenv("HOWDAH_REDACT", "(")
    with pytest.raises(ConfigError, match="is not a regular expression"):
        config.load().redaction()


def test_what_is_nested_without_end_is_cut():
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}

    assert "***" in str(Redact()(deep))


def test_the_application_has_the_last_word_and_sees_no_secret():
    heard = []

    def hook(kind: str, part: str, value: Any) -> Any:
        heard.append((kind, part, value))
        return {"user": value["user"]} if part == "args" else value

    seen = shown(
        row(
            args={"user": 7, "card": "4111-1111", "note": "n"},
            meta={"team": "a", MARK: ["/card"]},
            result={"ok": True},
            error="card 4111-1111",
        ),
        Redact(hook=hook),
    )

    assert seen.args == {"user": 7}
    assert seen.meta == {"team": "a"}
    assert heard == [
        ("charge", "args", {"user": 7, "card": "***", "note": "n"}),
        ("charge", "meta", {"team": "a"}),
        ("charge", "result", {"ok": True}),
        ("charge", "error", "card ***"),
    ]


def test_an_application_that_fails_to_say_shows_nothing(caplog):
    caplog.set_level(logging.ERROR)

    def hook(kind: str, part: str, value: Any) -> Any:
        raise RuntimeError(value)

    redact = Redact(hook=hook)
    seen = [shown(row(args={"card": "4111-1111"}, error="4111-1111"), redact) for _ in range(3)]

    assert {(each.args, each.error) for each in seen} == {("***", "***")}
    assert len(caplog.records) == 1
    assert "4111" not in caplog.text


def test_a_row_is_shown_without_its_secrets_and_stays_as_it_is():
    attempt = AttemptRow(
        attempt=1,
        outcome="retry",
        node=1,
        node_name="n",
        started_at=AT,
        ended_at=AT,
        error="ValueError",
        message="no 4111-1111",
        traceback="…\nValueError: no 4111-1111",
    )
    raw = row(args={"user": 7, "card": "4111-1111"}, meta={MARK: ["/card"]}, error="no 4111-1111", attempts=[attempt])

    seen = shown(raw, Redact())

    assert "4111" not in str(seen)
    assert seen.args == {"user": 7, "card": "***"}
    assert seen.meta is None
    assert seen.attempts[0].message == "no ***"
    assert (seen.id, seen.kind, seen.enqueued_at) == (raw.id, raw.kind, raw.enqueued_at)
    assert raw.args["card"] == "4111-1111"


@pytest.mark.parametrize("args", ["{not json 4111", ["4111"], 4111], ids=["text", "list", "number"])
def test_arguments_nobody_can_read_are_hidden_whole(args):
    assert "4111" not in str(shown(row(args=args, meta={MARK: ["/card"]}), Redact()))


def test_the_traceback_of_a_failure_is_formatted_once(monkeypatch):
    formatted = []
    format_exception = traceback.format_exception
    monkeypatch.setattr(
        traceback, "format_exception", lambda *args, **kwargs: formatted.append(1) or format_exception(*args, **kwargs)
    )

    report = FailureReport.of(ValueError("once"))

    assert (report.error, report.message, len(formatted)) == ("ValueError", "once", 1)
