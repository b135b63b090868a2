"""What is misspelled on the command line and in the environment is named, with the nearest name."""

from __future__ import annotations

import pytest

from howdah import ConfigError
from howdah.worker.options import parse_queues
from kit.command import Command


def test_an_unknown_command_suggests_the_nearest(howdah):
    result = howdah("wroker")

    assert result.exit_code == 2
    assert "did you mean 'worker'?" in result.stderr


def test_an_unknown_command_that_is_like_no_other_is_only_rejected(howdah):
    assert "No such command 'xyzzy'" in howdah("xyzzy").stderr


def test_a_limit_that_is_no_number_is_rejected():
    with pytest.raises(ConfigError, match="the limit of queue 'mail' must be a number, got 'ten'"):
        parse_queues("default,mail:ten")
    assert parse_queues("mail:ten:,a:b:3") == {"mail:ten": None, "a:b": 3}


def test_a_misspelled_variable_and_a_queue_of_no_task_are_warned_of(database):
    command = ("worker", "-a", "kit.exit_app:app", "--drain", "-q", "defualt,other")
    with Command(*command, dsn=database.dsn, HOWDAH_SLOT="3", HOWDAH_SUPERVISION="1") as worker:
        assert worker.ends() == 0
        output = worker.output

    assert output.count("the environment variable HOWDAH_SLOT is not an option; did you mean HOWDAH_SLOTS?") == 1
    assert "HOWDAH_SUPERVISION" not in output
    assert "no task of this app uses the queue 'defualt'; did you mean 'default'?" in output
    assert "no task of this app uses the queue 'other', unless" in output
