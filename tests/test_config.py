"""Settings: the file, the environment, flags; and finding the app."""

from __future__ import annotations

import doctest
import os
import sys

import pytest

from howdah import ConfigError, Howdah, Retention, WorkerOptions, config
from howdah.control_plane.options import ServeOptions
from howdah.options import Given
from howdah.settings import AppOptions, LogOptions, ProcessOptions

NAMES = ("HOWDAH_", "DATABASE_URL", "PG")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def slots(path: str | None = None) -> int:
    return config.load(path).of(WorkerOptions).slots


def test_without_anything_said_nothing_is_set():
    assert config.load() == config.Settings()
    with pytest.raises(ConfigError, match="no database is named; give --dsn, set HOWDAH_DSN"):
        config.load().database()


def test_the_file_says_everything(folder):
    (folder / "howdah.toml").write_text("""
        app = "shop:app"
        dsn = "postgresql:///file"
        schema = "s"
        concurrency = 7
        queues = "mail:10,default"
        poll = 2
        heartbeat = "3s"
        lease = "1m"
        grace = 0.5
        notify = false
        rebalance = "4s"
        dispatch = "50ms"
        leader = "advisory"
        processes = 2
        metrics = "127.0.0.1:9100"
        log_level = "DEBUG"
        log_json = true
        [retention]
        done = "7d"
        failed = 3600
    """)

    settings = config.load().over({"drain": Given(True, "--drain")})
    options = settings.of(WorkerOptions)

    assert settings.of(AppOptions) == AppOptions(app="shop:app", dsn="postgresql:///file", schema="s")
    assert settings.of(ProcessOptions) == ProcessOptions(processes=2, metrics=("127.0.0.1", 9100))
    assert settings.of(LogOptions) == LogOptions(log_level="debug", log_json=True)
    assert (options.slots, options.queues, options.drain) == (7, {"mail": 10, "default": None}, True)
    assert (options.poll, options.heartbeat, options.lease, options.grace, options.notify) == (2, 3, 60, 0.5, False)
    assert (options.rebalance, options.dispatch, options.leader) == (4, 0.05, "advisory")
    assert settings.of(Retention) == Retention(done=7 * 86400, failed=3600)


def test_the_file_names_a_control_plane_and_says_how_to_be_one(folder, monkeypatch):
    (folder / "howdah.toml").write_text("""
        server = "https://howdah.example.com"
        token_file = "token"
        ca = "ca.crt"
        labels = ["gpu", "linux/arm64"]
        [serve]
        port = 9000
        heartbeat = "10s"
        offline_after = "1m"
        auth = "none"
        largest_body = 1000
    """)
    monkeypatch.setenv("HOWDAH_SERVE_PORT", "9001")
    monkeypatch.setenv("HOWDAH_LABELS", "big, gpu")

    settings = config.load().over({"serve.rate": Given(5.0, "--rate")})
    options, process = settings.of(ServeOptions), settings.of(ProcessOptions)

    assert (process.server, process.token_file, process.ca) == ("https://howdah.example.com", "token", "ca.crt")
    assert settings.of(WorkerOptions).labels == ["big", "gpu"]
    assert (options.host, options.port, options.auth, options.largest_body) == ("127.0.0.1", 9001, "none", 1000)
    assert (options.heartbeat, options.offline_after, options.rate) == (10.0, 60.0, 5.0)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[serve]\nprot = 1", "unknown key 'serve.prot'; did you mean 'port'"),
        ("[serve]\nport = 'x'", "howdah.toml: serve.port must be a whole number, got 'x'"),
        ("[serve]\nport = 70000", "howdah.toml: serve.port must be from 0 to 65535, got 70000"),
        ("[serve]\nrefusals = 0", "howdah.toml: serve.refusals must be above zero, got 0"),
        ("[serve]\npassword = 'short'", "howdah.toml: serve.password must have at least 12 characters, got 5"),
        ("serve = 3", "howdah.toml: serve must be a table, got 3; write [serve] above its keys"),
        ("server = 'here'", "howdah.toml: server: the server is a URL such as https://howdah.example.com"),
        ("[serve]\nheartbeat = 'soon'", "serve.heartbeat: 'soon' is not a duration"),
        ("labels = ['a+b']", "a label is 1 to 50 printable characters"),
    ],
)
def test_what_is_wrong_about_a_fleet_is_named(folder, toml, message):
    (folder / "howdah.toml").write_text(toml)

    with pytest.raises(ConfigError) as raised:
        config.load()
    assert message in str(raised.value)


def test_the_environment_adds_to_a_part_of_the_file(folder, monkeypatch):
    (folder / "howdah.toml").write_text("[retention]\ndone = '7d'\nfailed = '8d'\n")
    monkeypatch.setenv("HOWDAH_RETENTION_DONE", "1d")

    assert config.load().of(Retention) == Retention(done=86400, failed=8 * 86400)


def test_the_file_is_found_upwards_and_the_nearest_wins(folder, monkeypatch):
    (folder / "howdah.toml").write_text("slots = 1")
    near = folder / "a" / "b"
    near.mkdir(parents=True)
    monkeypatch.chdir(near)
    above = slots()
    (folder / "a" / "pyproject.toml").write_text("[tool.howdah]\nslots = 2\n")
    project = slots()
    (near / "pyproject.toml").write_text("[tool.other]\nslots = 3\n")

    assert (above, project, slots()) == (1, 2, 2)


def test_the_environment_is_above_the_file_and_flags_above_both(folder, monkeypatch):
    (folder / "howdah.toml").write_text("dsn = 'postgresql:///file'\nslots = 1\nprocesses = 2\nretention.done = '1d'")
    for name, value in {
        "DSN": "postgresql:///env",
        "CONCURRENCY": "5",
        "NOTIFY": "False",
        "QUEUES": "a:1,b",
        "LEASE": "40s",
        "REBALANCE": "3s",
        "LEADER": "ADVISORY",
        "RETENTION_FAILED": "2d",
        "LOG_JSON": "1",
        "POLL": "",
    }.items():
        monkeypatch.setenv(f"HOWDAH_{name}", value)

    settings = config.load().over({"slots": Given(9, "--concurrency")})
    options = settings.of(WorkerOptions)

    assert (settings.of(AppOptions).dsn, options.slots, settings.of(ProcessOptions).processes) == (
        "postgresql:///env",
        9,
        2,
    )
    assert (options.notify, options.queues, options.lease) == (False, {"a": 1, "b": None}, 40)
    assert (options.rebalance, options.leader) == (3, "advisory")
    assert settings.of(LogOptions).log_json is True
    assert "dispatch" not in settings.given
    assert "poll" not in settings.given, "an empty variable says nothing"
    assert settings.of(Retention, Retention(logs=5)) == Retention(done=86400, failed=2 * 86400, logs=5)


@pytest.mark.parametrize(("name", "value"), [("DATABASE_URL", "postgresql:///url"), ("PGHOST", "db")])
def test_other_names_for_the_database_count_too(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    assert config.load().database().dsn == ("postgresql:///url" if name == "DATABASE_URL" else "postgresql://")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slotz = 3", r"howdah.toml: unknown key 'slotz'; did you mean 'slots'\?"),
        ("zzzzzz = 3", "howdah.toml: unknown key 'zzzzzz'; known keys are app, "),
        ("retention.dome = 3", r"howdah.toml: unknown key 'retention.dome'; did you mean 'done'\?"),
        ("slots = 'many'", "howdah.toml: slots must be a whole number, got 'many'"),
        ("slots = 0", "howdah.toml: slots must be above zero, got 0"),
        ("processes = 0", "howdah.toml: processes must be from 1 to 1000, got 0"),
        ("processes = 1001", "howdah.toml: processes must be from 1 to 1000, got 1001"),
        ("metrics = 'here'", "howdah.toml: metrics must be HOST:PORT, got 'here'"),
        ("redact = '('", "howdah.toml: redact: '\\(' is not a regular expression of keys"),
        ("retention.audit = '1d'", "howdah.toml: retention.audit must be at least 7d, got 24h"),
        ("poll = 'soon'", "howdah.toml: poll: 'soon' is not a duration; write 90s, 15m, 24h or 14d"),
        ("lease = -1", "howdah.toml: lease: -1 is not a duration"),
        ("retention.done = true", "howdah.toml: retention.done: True is not a duration"),
        ("retention = 3", "howdah.toml: retention must be a table, got 3"),
        ("dispatch = 'often'", "howdah.toml: dispatch: 'often' is not a duration"),
        ("leader = 'me'", "howdah.toml: leader must be 'lease' or 'advisory', got 'me'"),
        ("log_level = 'loud'", "howdah.toml: log_level must be 'debug' or 'info' or .*, got 'loud'"),
        ("queues = 'a:0'", "howdah.toml: queues: the limit of queue 'a' must be above zero, got 0"),
        (
            "slots = 1\nconcurrency = 2",
            "howdah.toml: slots and .*howdah.toml: concurrency are the same option; set one of them",
        ),
        ("slots = ", "howdah.toml: Invalid value"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(folder, text, message):
    (folder / "howdah.toml").write_text(text)

    with pytest.raises(ConfigError, match=message):
        config.load()


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv("HOWDAH_SLOTS", "many")
    with pytest.raises(ConfigError, match="HOWDAH_SLOTS must be a whole number, got 'many'"):
        config.load()
    monkeypatch.setenv("HOWDAH_SLOTS", "3")
    monkeypatch.setenv("HOWDAH_RETENTION_DONE", "old")
    with pytest.raises(ConfigError, match="HOWDAH_RETENTION_DONE: 'old' is not a duration"):
        config.load()


def test_options_that_do_not_fit_together_are_named_with_their_sources(folder, monkeypatch):
    (folder / "howdah.toml").write_text("lease = '5s'")
    monkeypatch.setenv("HOWDAH_HEARTBEAT", "4s")

    with pytest.raises(ConfigError) as raised:
        config.load().of(WorkerOptions)
    assert str(raised.value) == (
        "lease must be at least two heartbeats, got lease 5 s and heartbeat 4 s;"
        f" lease is set by {folder / 'howdah.toml'}: lease; heartbeat is set by HOWDAH_HEARTBEAT"
    )
    with pytest.raises(ConfigError, match=r"got 10 s and 30 s; offline_after is set by --offline-after$"):
        config.Settings().over({"serve.offline_after": Given(10.0, "--offline-after")}).of(ServeOptions)


def test_a_token_overrides_a_token_file_of_a_lower_source(folder, monkeypatch):
    (folder / "howdah.toml").write_text("token_file = 'file'\ntoken = 'in the file'")
    low = config.load().of(ProcessOptions)
    monkeypatch.setenv("HOWDAH_TOKEN", "in the environment")
    middle = config.load().of(ProcessOptions)
    monkeypatch.setenv("HOWDAH_TOKEN_FILE", "other")
    both = config.load().of(ProcessOptions)
    high = config.load().over({"token": Given("flag", "--token")}).of(ProcessOptions)

    assert (low.token_file, middle.token_file, both.token_file, high.token_file) == ("file", None, "other", None)
    assert (middle.token, high.token) == ("in the environment", "flag")


def test_secrets_are_not_shown(folder, monkeypatch):
    (folder / "howdah.toml").write_text("dsn = 'postgresql://me:s3cret@db/x'\n[serve]\npassword = 's3cret-s3cret'\n")
    monkeypatch.setenv("HOWDAH_TOKEN", "s3cret")
    settings = config.load()

    shown = [settings, *(settings.of(each) for each in (AppOptions, ServeOptions, ProcessOptions))]
    assert "s3cret" not in repr(shown)


def test_a_named_file_must_exist(folder, monkeypatch):
    (folder / "other.toml").write_text("slots = 4")

    assert slots("other.toml") == 4
    with pytest.raises(ConfigError, match=r"nope.toml: there is no such file"):
        config.load("nope.toml")
    monkeypatch.setenv("HOWDAH_CONFIG", "other.toml")
    assert slots() == 4


def test_apps_are_found_by_module_and_attribute(folder):
    (folder / "shop_found.py").write_text(
        "from howdah import Howdah\napp = Howdah('postgresql:///x')\n"
        "class Box:\n    inner = app\ndef make(): return app\n"
    )

    app = config.load_app("shop_found")

    assert isinstance(app, Howdah)
    assert app is config.load_app("shop_found:app") is config.load_app("shop_found:Box.inner")
    assert app is config.load_app("shop_found:make")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere_at_all", "there is no module 'nowhere_at_all' here; the current folder is"),
        ("nowhere.at.all:app", "there is no module 'nowhere.at.all' here"),
        ("shop_bad:ap", r"module 'shop_bad' has no 'ap'; did you mean shop_bad:application\?"),
        ("shop_bad:number", "shop_bad:number is a int, not a Howdah"),
        ("shop_bad:make_number", "shop_bad:make_number is a int, not a Howdah"),
        ("shop_bad:Howdah", "shop_bad:Howdah is a type, not a Howdah"),
        ("shop_broken", "module 'shop_broken' cannot be imported: No module named 'missing_library'"),
        ("shop_raises", "module 'shop_raises' cannot be imported: ZeroDivisionError"),
        (":app", "':app' does not name an application; write module:attribute"),
        ("shop/app.py", "'shop/app.py' does not name an application"),
    ],
)
def test_what_is_no_app_is_a_clear_error(folder, spec, message):
    (folder / "shop_bad.py").write_text(
        "from howdah import Howdah\napplication = Howdah()\nnumber = 3\ndef make_number(): return 3\n"
    )
    (folder / "shop_broken.py").write_text("import missing_library\n")
    (folder / "shop_raises.py").write_text("1 / 0\n")

    with pytest.raises(ConfigError, match=message):
        config.load_app(spec)


def test_examples_in_the_code_are_true():
    assert doctest.testmod(config).failed == 0
