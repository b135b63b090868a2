"""Settings: the file, the environment, flags; and finding the app."""

from __future__ import annotations

import doctest
import os
import sys

import pytest

from howdah import ConfigError, Howdah, Retention, config

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

    settings = config.load()
    options = settings.worker_options(drain=True)

    assert (settings.app, settings.dsn, settings.schema, settings.processes) == (
        "shop:app",
        "postgresql:///file",
        "s",
        2,
    )
    assert (settings.metrics, settings.log_level, settings.log_json) == ("127.0.0.1:9100", "debug", True)
    assert (options.slots, options.queues, options.drain) == (7, {"mail": 10, "default": None}, True)
    assert (options.poll, options.heartbeat, options.lease, options.grace, options.notify) == (2, 3, 60, 0.5, False)
    assert (options.rebalance, options.dispatch, options.leader) == (4, 0.05, "advisory")
    assert settings.keep() == Retention(done=7 * 86400, failed=3600)


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

    settings = config.load()
    options = settings.serve_options(rate=5.0, host=None)

    assert (settings.server, settings.token_file, settings.ca) == ("https://howdah.example.com", "token", "ca.crt")
    assert settings.worker_options().labels == ["big", "gpu"]
    assert (options.host, options.port, options.auth, options.largest_body) == ("127.0.0.1", 9001, "none", 1000)
    assert (options.heartbeat, options.offline_after, options.rate) == (10.0, 60.0, 5.0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("[serve]\nprot = 1", "unknown key 'serve.prot'; did you mean 'port'"),
        ("[serve]\nport = 'x'", "serve.port: expected `int | null`"),
        ("[serve]\nheartbeat = 'soon'", "serve.heartbeat: 'soon' is not a duration"),
        ("labels = ['a+b']", "a label is 1 to 50 printable characters"),
    ],
)
def test_what_is_wrong_about_a_fleet_is_named(folder, said, message):
    (folder / "howdah.toml").write_text(said)

    with pytest.raises(ConfigError) as raised:
        config.load().worker_options()
    assert message in str(raised.value)


def test_the_environment_adds_to_a_part_of_the_file(folder, monkeypatch):
    (folder / "howdah.toml").write_text("[retention]\ndone = '7d'\nfailed = '8d'\n")
    monkeypatch.setenv("HOWDAH_RETENTION_DONE", "1d")

    assert config.load().keep() == Retention(done=86400, failed=8 * 86400)


def test_the_file_is_found_upwards_and_the_nearest_wins(folder, monkeypatch):
    (folder / "howdah.toml").write_text("slots = 1")
    near = folder / "a" / "b"
    near.mkdir(parents=True)
    monkeypatch.chdir(near)
    above = config.load().slots
    (folder / "a" / "pyproject.toml").write_text("[tool.howdah]\nslots = 2\n")
    project = config.load().slots
    (near / "pyproject.toml").write_text("[tool.other]\nslots = 3\n")

    assert (above, project, config.load().slots) == (1, 2, 2)


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

    settings = config.load().over(slots=9, poll=None)

    assert (settings.dsn, settings.slots, settings.processes) == ("postgresql:///env", 9, 2)
    assert (settings.notify, settings.queues, settings.lease) == (False, {"a": 1, "b": None}, 40)
    assert (settings.rebalance, settings.dispatch, settings.leader) == (3, None, "advisory")
    assert (settings.log_json, settings.poll) == (True, None)
    assert settings.keep(Retention(done=5)).failed == 2 * 86400


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
        ("slots = 'many'", r"howdah.toml: slots: expected `int \| null`, got `str`"),
        ("poll = 'soon'", "howdah.toml: poll: 'soon' is not a duration; write 90s, 15m, 24h or 14d"),
        ("lease = -1", "howdah.toml: lease: -1 is not a duration"),
        ("retention.done = true", "howdah.toml: retention.done: True is not a duration"),
        ("retention = 3", "howdah.toml: retention: expected"),
        ("dispatch = 'often'", "howdah.toml: dispatch: 'often' is not a duration"),
        ("leader = 'me'", "howdah.toml: leader: invalid enum value 'me'"),
        ("log_level = 'loud'", "howdah.toml: log_level: invalid enum value 'loud'"),
        ("queues = 'a:0'", "howdah.toml: queues: the limit of queue 'a' must be above zero, got 0"),
        ("slots = 1\nconcurrency = 2", "howdah.toml: slots and concurrency are the same; say one of them"),
        ("slots = ", "howdah.toml: Invalid value"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(folder, text, message):
    (folder / "howdah.toml").write_text(text)

    with pytest.raises(ConfigError, match=message):
        config.load()


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv("HOWDAH_SLOTS", "many")
    with pytest.raises(ConfigError, match=r"HOWDAH_SLOTS: expected `int \| null`, got `str`"):
        config.load()
    monkeypatch.setenv("HOWDAH_SLOTS", "3")
    monkeypatch.setenv("HOWDAH_RETENTION_DONE", "old")
    with pytest.raises(ConfigError, match="HOWDAH_RETENTION_DONE: 'old' is not a duration"):
        config.load()


def test_a_named_file_must_exist(folder, monkeypatch):
    (folder / "other.toml").write_text("slots = 4")

    assert config.load("other.toml").slots == 4
    with pytest.raises(ConfigError, match=r"nope.toml: there is no such file"):
        config.load("nope.toml")
    monkeypatch.setenv("HOWDAH_CONFIG", "other.toml")
    assert config.load().slots == 4


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
