"""Put a built site beside those of other versions: SITE/0.2, SITE/dev, and SITE/versions.json for the switch.

``python versions.py BUILD SITE VERSION``; ``scripts/docs --into SITE`` calls it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

REDIRECT = '<!doctype html><meta charset="utf-8"><title>Howdah</title><meta http-equiv="refresh" content="0; url={0}/">'


def folder_name(version: str) -> str:
    """Return the folder of a version: releases of one minor version share it.

    >>> folder_name("0.2.1"), folder_name("dev")
    ('0.2', 'dev')
    """
    return re.sub(r"^(\d+\.\d+)\..*", r"\1", version)


def publish(build: Path, site: Path, version: str) -> Path:
    """Replace the folder of ``version`` in ``site``, list all versions, and redirect the site to the newest."""
    target = site / folder_name(version)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(build, target)
    there = sorted((path.parent.name for path in site.glob("*/index.html")), key=order, reverse=True)
    (site / "versions.json").write_text(json.dumps(there) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(there[0]) + "\n", encoding="utf-8")
    (site / ".nojekyll").touch()
    return target


def order(name: str) -> tuple[int, ...]:
    """Sort by number; what is no release comes last.

    >>> sorted(["dev", "0.10", "0.9"], key=order, reverse=True)
    ['0.10', '0.9', 'dev']
    """
    return tuple(map(int, name.split("."))) if re.fullmatch(r"\d+(\.\d+)*", name) else (-1,)


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
