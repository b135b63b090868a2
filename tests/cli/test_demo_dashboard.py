"""The dashboard that `howdah demo` and `howdah dev` serve, over HTTP."""

from __future__ import annotations

import re
import signal
import socket
import stat
from pathlib import Path

import httpx2 as httpx

from kit.command import Command, eventually

ADDRESS = re.compile(r"dashboard  ?(http://127\.0\.0\.1:\d+/dashboard/)\?key=([\w-]+)")
HTTP_TIMEOUT = 60.0


def entered(command: Command) -> tuple[str, httpx.Client]:
    """Where it says its dashboard is, and a client that followed the link."""
    found = eventually(lambda: ADDRESS.search(command.output) or command.process.poll() is not None)
    assert isinstance(found, re.Match), command.output
    browser = httpx.Client(timeout=HTTP_TIMEOUT, trust_env=False)

    def enter() -> bool:
        try:
            return browser.get(f"{found[1]}?key={found[2]}").status_code == 303
        except httpx.TransportError:
            return False

    eventually(enter)
    return found[1], browser


def page(browser: httpx.Client, url: str) -> str:
    """What is there, once somebody answers."""

    def ask() -> str | None:
        try:
            answer = browser.get(url, follow_redirects=True)
        except httpx.TransportError:
            return None
        assert answer.status_code == 200, answer.text
        return answer.text

    output: str = eventually(ask)
    return output


def enqueue(browser: httpx.Client, url: str, **arguments: str) -> httpx.Response:
    """Enqueue by the form, as a browser would."""
    origin = url.removesuffix("/dashboard/")
    return browser.post(f"{url}enqueue", data={"sure": "yes", **arguments}, headers={"Origin": origin})


def test_the_demo_says_first_where_its_dashboard_is_and_shows_the_whole_shop_there() -> None:
    with Command("demo") as demo:
        url, browser = entered(demo)
        assert "enqueued" not in demo.output[: demo.output.index(url)]
        demo.says("s  enqueued", 30)

        for way in (url, url.removesuffix("/"), url.removesuffix("dashboard/")):
            assert "<h1>Overview</h1>" in page(browser, way)
        assert "photos" in page(browser, f"{url}tables")
        assert "export_catalogue" in page(browser, f"{url}enqueue")
        eventually(lambda: "till" in page(browser, f"{url}schedules"))
        eventually(lambda: "order_view" in page(browser, f"{url}consumers"))
        eventually(lambda: page(browser, f"{url}nodes").count("/dashboard/nodes/") >= 2)
        eventually(lambda: "/dashboard/table/row?" in page(browser, f"{url}table?name=photos&state=completed"))


def test_who_acts_on_the_dashboard_does_not_unbalance_the_books_and_an_open_page_does_not_keep_the_demo() -> None:
    with Command("demo") as demo:
        url, browser = entered(demo)
        demo.says("s  enqueued", 30)
        assert enqueue(browser, url, kind="import_row", **{"arg.line": "1,2,3"}).status_code == 303
        with browser.stream("GET", f"{url}live") as live:
            assert next(live.iter_text()).startswith("retry:")
            demo.send(signal.SIGINT)
            assert demo.ends(20) == 0, demo.output

        assert "1 actions on the dashboard" in demo.output
        assert re.search(r"^  lost +0  ", demo.output, re.MULTILINE), demo.output


def test_a_port_that_is_taken_is_refused_and_none_is_taken_when_none_is_wanted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Command("demo", "--port", port_of(taken)) as demo:
        assert demo.ends() == 2
        assert f"port {port_of(taken)}: it is in use; choose another with --port" in demo.output

    with Command("demo", "--no-dashboard", "--seconds", "1") as demo:
        assert demo.ends() == 0, demo.output
        assert "dashboard" not in demo.output


def test_a_browser_is_opened_only_when_asked_for(tmp_path: Path) -> None:
    seen, program = tmp_path / "seen", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" >> {seen}\n')
    program.chmod(0o755)
    with Command("demo", "--open", "--port", "0", BROWSER=f"{program} %s") as demo:
        url, _ = entered(demo)

        eventually(seen.exists, why=lambda: demo.output)
        eventually(lambda: seen.read_text().startswith("file:///"))
        file = Path(seen.read_text().removeprefix("file://").strip())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, "all users can see the words of a command, but not this file"
        assert f"url={url}?key=" in file.read_text()


def test_dev_shows_the_dashboard_of_the_app_and_anew_when_its_code_changes(database, tmp_path: Path) -> None:
    program = "from howdah import Howdah\napp = Howdah()\n@app.task\nasync def {}(): ...\n"
    (tmp_path / "own.py").write_text(program.format("greet"))
    with Command("dev", "-a", "own:app", dsn=database.dsn, folder=tmp_path) as dev:
        url, browser = entered(dev)
        assert "greet" in page(browser, f"{url}enqueue")

        assert httpx.get(f"{url}enqueue", timeout=HTTP_TIMEOUT, trust_env=False).status_code == 403, "without the key"

        (tmp_path / "own.py").write_text(program.format("wave"))
        eventually(lambda: "wave" in page(browser, f"{url}enqueue"), why=lambda: dev.output)
        dev.send(signal.SIGINT)
        assert dev.ends() == 0, dev.output


def test_dev_without_a_dashboard(database, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from howdah import Howdah\napp = Howdah()\n@app.task\nasync def greet(): ...\n")
    with Command("dev", "-a", "own:app", "--no-dashboard", dsn=database.dsn, folder=tmp_path) as dev:
        dev.says("starts")
        assert "dashboard" not in dev.output
        assert len(dev.children) == 1
        dev.send(signal.SIGINT)
        assert dev.ends() == 0, dev.output


def port_of(listener: socket.socket) -> str:
    return str(listener.getsockname()[1])
