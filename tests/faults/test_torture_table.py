"""The table of many runs: what was lost is seen, what a control did not notice is seen, and the page keeps the rest."""

from __future__ import annotations

import msgspec
import pytest

from howdah import ConfigError
from howdah_lab.torture import report_table
from howdah_lab.torture.checker import Violation
from howdah_lab.torture.report import RunReport, all_good
from kit.command import Command

LOST = Violation("I1", "jobs that were accepted and are not done", 2, ["1", "2"], lost=True)


def report(fault="kill", **facts):
    usual = {
        "faults": [fault],
        "seed": 1,
        "seconds": 20.0,
        "injections": [],
        "asked": 1200,
        "accepted": 1100,
        "unknown": 0,
        "effects": 1000,
        "lost": 0,
        "doubled": 0,
        "stale": 3,
        "recovery": [1.0, 3.0],
        "settled": 2.0,
        "memory": 1,
        "connections": 1,
        "unsafe": [],
        "stuck": [],
        "folder": "",
    }
    return RunReport(**{**usual, **facts})


def row(text, fault):
    [found] = [line for line in text.splitlines() if line.startswith(f"| `{fault}`")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_runs_of_one_fault_are_added_up():
    cells = row(report_table.table([report(), report()], {}), "kill")
    assert cells[1:10] == ["2", "40", "0", "2,400", "2,000", "0", "0", "6", "2.00 / 3.00 s"]


def test_what_was_found_stands_beside_the_fault():
    cells = row(report_table.table([report(unsafe=[LOST], lost=2)], {}), "kill")
    assert "jobs that were accepted and are not done: 2" in cells[0]
    assert cells[6] == "2"


def test_controls_say_whether_they_were_noticed():
    runs = [report(), report(without="reset", unsafe=[LOST], lost=2), report(without="transaction")]
    assert row(report_table.table(runs, {}), "kill")[6:11:4] == ["0", "reset: found, transaction: **not found**"]


def test_a_machine_that_is_slow_makes_no_control_good():
    slow = Violation("I11", "recoveries that took too long", 1, [])
    assert report(without="reset", stuck=[slow]).good
    assert not report(without="fence", stuck=[slow]).good
    assert not report(stuck=[slow]).good


def test_a_control_has_more_than_one_chance():
    runs = [report(without="key"), report(without="key", unsafe=[LOST], lost=2)]
    assert row(report_table.table([report(), *runs], {}), "kill")[10] == "key: found in 1 of 2 runs"
    assert all_good([report(), *runs])
    assert not all_good([report(), runs[0]])
    assert not all_good([report(unsafe=[LOST], lost=2), report()]), "only controls have"


def test_what_was_not_run_is_said():
    assert "- not run: `restart`: no server" in report_table.table([report()], {"restart": "no server"})


def test_it_is_written_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report_table.BEGIN}\nold\n{report_table.END}\nafter\n")
    report_table.write(page, [report()], {})
    text = page.read_text()
    assert (text.startswith("before\n"), text.endswith("\nafter\n"), "old" in text, "`kill`" in text) == (
        True,
        True,
        False,
        True,
    )
    page.write_text("no marks")
    with pytest.raises(ConfigError, match="has no place for the table"):
        report_table.write(page, [report()], {})


@pytest.mark.parametrize(("without", "code"), [(None, 1), ("reset", 0)])
def test_kept_reports_are_shown_again(tmp_path, without, code):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "report.json").write_bytes(msgspec.json.encode(report(unsafe=[LOST], without=without)))
    with Command("torture", "--reports", str(tmp_path)) as command:
        assert command.ends() == code, command.output
        assert "jobs that were accepted and are not done: 2" in command.output
