"""Allow-list of repositories that may be cloned; everything that is not on it is rejected."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from howdah.errors import ConfigError

SCHEMES = ("https", "http", "ssh")
LONGEST = 2000
_BRANCH = re.compile(r"(?!-)(?!/)(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)))[A-Za-z0-9_./+@#=-]{1,200}(?<![/.])")


class Forbidden(Exception):
    """The repository or branch is not allowed; the message says why."""


def check_allowed(origin: str) -> None:
    """Reject an invalid entry of the allow-list."""
    if origin.startswith("/"):
        return
    parts = urlsplit(origin)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ConfigError(
            f"{origin!r} cannot be allowed; write an absolute path, or a URL such as https://git.example.com/team/"
        )


def check_origin(url: str, allowed: Iterable[str]) -> str:
    """Return the address to clone for this URL, or raise :class:`Forbidden`.

    >>> check_origin("https://git.example.com/team/shop.git", ["https://git.example.com/team"])
    'https://git.example.com/team/shop.git'
    """
    if not url or len(url) > LONGEST or url.startswith("-") or not url.isprintable() or re.search(r"[\s\\]", url):
        raise Forbidden(f"{url[:200]!r} is no address of a repository")
    if "::" in url and not re.match(r"[a-z]+://\[", url):
        raise Forbidden("remote helpers (transport::address) are not allowed")
    found = _local(url, allowed) if url.startswith("/") else _remote(url, allowed)
    if found is None:
        raise Forbidden(f"{_shown(url)} is not on the allow-list of repositories")
    return found


def check_branch(name: str) -> str:
    """Return the name of a branch, or raise :class:`Forbidden`.

    >>> check_branch("feature/one")
    'feature/one'
    """
    if not _BRANCH.fullmatch(name) or any(part.startswith(".") for part in name.split("/")):
        raise Forbidden(f"{name[:200]!r} cannot be the name of a branch")
    return name


def _local(url: str, allowed: Iterable[str]) -> str | None:
    # the resolved path: no `..` and no symbolic link may lead out of the allowed folder
    real = os.path.realpath(url)
    for each in allowed:
        if each.startswith("/"):
            root = os.path.realpath(each)
            if real == root or real.startswith(root.rstrip("/") + "/"):
                return real
    return None


def _remote(url: str, allowed: Iterable[str]) -> str | None:
    try:
        wanted = urlsplit(url)
        port = wanted.port
    except ValueError:
        raise Forbidden("this is no URL") from None
    if wanted.scheme not in SCHEMES or not wanted.hostname:
        raise Forbidden(f"{_shown(url)} is neither a URL of a kind that may be cloned nor an absolute path")
    if wanted.password is not None or (wanted.username is not None and wanted.scheme != "ssh"):
        raise Forbidden("a URL must not carry credentials; they belong into the sidecar's git configuration")
    if wanted.hostname.startswith("-") or (wanted.username or "").startswith("-"):
        raise Forbidden(f"{_shown(url)} is no address of a repository")
    if wanted.query or wanted.fragment or ".." in unquote(wanted.path).split("/"):
        raise Forbidden(f"{_shown(url)} must be a plain path on its host")
    for each in allowed:
        rule = urlsplit(each)
        if (rule.scheme, rule.hostname, rule.port) == (wanted.scheme, wanted.hostname, port):
            root = rule.path.rstrip("/")
            if wanted.path == root or wanted.path.startswith(root + "/"):
                return url
    return None


def _shown(url: str) -> str:
    """Return the URL without parts that may be secret."""
    return re.sub(r"://[^/@]*@", "://***@", url)[:200]
