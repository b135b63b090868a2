"""What may be cloned: the list, and the tricks against it."""

from __future__ import annotations

import pytest

from howdah import ConfigError
from howdah_agent.sidecar.options import SidecarOptions
from howdah_agent.sidecar.origin import Forbidden, check_branch, check_origin

TEAM = ["https://git.example.com/team", "ssh://git@git.example.com:2222/", "http://localhost:3000/a/"]
TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    "url",
    [
        "https://git.example.com/team",
        "https://git.example.com/team/shop.git",
        "https://GIT.example.com/team/shop.git",
        "ssh://git@git.example.com:2222/anything.git",
        "http://localhost:3000/a/b",
    ],
)
def test_what_is_on_the_list_may_be_cloned(url):
    assert check_origin(url, TEAM) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "-u./evil",
        "--upload-pack=touch /tmp/pwned",
        "ext::sh -c 'touch /tmp/pwned'",
        "ext::sh",
        "fd::17",
        "file:///etc",
        "git://git.example.com/team/shop.git",
        "https://git.example.com/teamwork/shop.git",
        "https://git.example.com/",
        "https://git.example.com.evil.example/team/shop.git",
        "https://evil.example/https://git.example.com/team/",
        "https://git.example.com@evil.example/team/shop.git",
        "https://user:secret@git.example.com/team/shop.git",
        "https://token@git.example.com/team/shop.git",
        "https://git.example.com:444/team/shop.git",
        "http://git.example.com/team/shop.git",
        "https://git.example.com/team/../other/shop.git",
        "https://git.example.com/team/%2e%2e/other/shop.git",
        "https://git.example.com/team/shop.git?x=1",
        "https://git.example.com/team/shop.git#x",
        "https://git.example.com/team/a b",
        "https://git.example.com/team/a\nb",
        "https://git.example.com\\@evil.example/team/",
        "https://[::1/team",
        "ssh://-oProxyCommand=id@git.example.com:2222/x",
        "ssh://-oProxyCommand=id/x",
        "git@git.example.com:team/shop.git",
        "git.example.com/team/shop.git",
        "./team",
        "team",
        "/etc",
        "x" * 3000,
    ],
)
def test_everything_else_is_refused(url):
    with pytest.raises(Forbidden) as refused:
        check_origin(url, TEAM)
    assert "secret" not in str(refused.value)


def test_a_local_path_cannot_be_left(tmp_path):
    inside, outside = tmp_path / "repositories", tmp_path / "repositories-of-others"
    (inside / "shop.git").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    allowed = [str(inside)]
    assert check_origin(f"{inside}/shop.git", allowed) == f"{inside}/shop.git"
    assert check_origin(f"{inside}/x/../shop.git", allowed) == f"{inside}/shop.git"
    for path in (f"{inside}/../repositories-of-others", str(outside), f"{inside}/link", "/", f"{inside}x", "//etc"):
        with pytest.raises(Forbidden):
            check_origin(path, allowed)


def test_nothing_is_allowed_unless_it_is_said():
    with pytest.raises(Forbidden):
        check_origin("https://git.example.com/shop.git", [])


@pytest.mark.parametrize("name", ["main", "feature/one-2", "v1.2", "user@x"])
def test_a_branch(name):
    assert check_branch(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-x", "--force", "a..b", "/a", "a/", "a//b", "a b", "a:b", "+a:b", "a~1", "a^", "@{-1}", "x.lock", ".a",
     "a/.b", "a\n", "a" * 300],
)  # fmt: skip
def test_no_branch(name):
    with pytest.raises(Forbidden):
        check_branch(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "0.0.0.0"},
        {"host": "192.168.1.1"},
        {"host": "::"},
        {"host": "example.com"},
        {"token": "short"},
        {"token": ""},
        {"agent": ()},
        {"slots": 0},
        {"kill_after": -1},
        {"author": "somebody"},
        {"allow": ["git.example.com"]},
        {"allow": ["ext::sh"]},
        {"allow": ["file:///x"]},
    ],
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError):
        SidecarOptions(**{"token": TOKEN, "folder": "/x", "agent": ["cat"], **wrong})


def test_the_token_is_not_shown():
    assert TOKEN not in repr(SidecarOptions(token=TOKEN, folder="/x", agent=["cat"]))
