"""The scripts of the project: what they refuse, and what they say then."""

from __future__ import annotations

import subprocess
from pathlib import Path

from howdah.version import __version__

ROOT = Path(__file__).parents[2]


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / name, *arguments], capture_output=True, text=True, timeout=60)


def test_no_source_file_is_too_long() -> None:
    ran = run("file-lengths")

    assert (ran.returncode, ran.stdout) == (0, "")


def test_a_long_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    for name, lines in {
        "long.py": 301,
        "short.py": 300,
        "long.sql": 302,
        "migrations/1.sql": 400,
        "it.txt": 999,
    }.items():
        (tmp_path / name).write_text("\n" * lines)

    ran = run("file-lengths", str(tmp_path))

    assert ran.returncode == 1
    assert [line.partition(";")[0] for line in ran.stdout.splitlines()] == [
        f"{tmp_path}/long.py has 301 lines",
        f"{tmp_path}/long.sql has 302 lines",
    ]


def test_a_tag_of_another_version_is_refused() -> None:
    ran = run("release-check", "v0.0.1")

    assert ran.returncode == 1
    assert f"tag v0.0.1, but src/howdah/version.py says {__version__}" in ran.stderr


def test_the_changelog_has_an_entry_of_this_version() -> None:
    ran = run("release-check", f"v{__version__}", "--notes")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
    assert "\n## " not in ran.stdout
