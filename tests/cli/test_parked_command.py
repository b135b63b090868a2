"""`howdah consumers parked`."""

from __future__ import annotations

import json


def test_parked_events_are_listed_tried_again_and_dropped(howdah, shop):
    shop.append(*['{"bad": 1}'] * 4)
    shop.catch_up()

    listed = howdah("consumers", "parked", "list")
    rows = json.loads(howdah("consumers", "parked", "list", "mails", "--json", "--after", "2").stdout)
    page = howdah("consumers", "parked", "list", "-n", "2")
    other = howdah("consumers", "parked", "list", "totals")
    dropped = howdah("consumers", "parked", "drop", "mails", "1", "9")
    shop.conn.execute("insert into mended default values")
    retried = howdah("consumers", "parked", "retry", "mails", "2")
    wanted = json.loads(howdah("consumers", "parked", "list", "--json").stdout)
    shop.catch_up()
    left = json.loads(howdah("consumers", "parked", "list", "--json").stdout)
    unasked = howdah("consumers", "parked", "drop", "mails", "--all")
    rest = howdah("consumers", "parked", "drop", "mails", "--all", "--yes", "--json")

    heading, first, *_ = listed.stdout.splitlines()
    assert heading.split()[:5] == ["position", "consumer", "stream", "version", "type"]
    assert first.split()[:5] == ["1", "mails", "Order-1", "1", "Placed"]
    assert first.endswith("ValueError: cannot\\x1b[31m add 1, token=***")
    assert [(row["position"], row["data"]) for row in rows] == [(3, {"bad": 1}), (4, {"bad": 1})]
    assert page.stderr == "later ones: --after 2\n"
    assert other.stdout == "no parked events\n"
    assert (dropped.exit_code, dropped.stdout) == (1, "dropped: 1 of 2 events\nnot parked: 9\n")
    assert (retried.exit_code, retried.stdout) == (0, "to be tried again: 1 of 1 events\n")
    assert [row["position"] for row in wanted if row["wanted_at"]] == [2]
    assert [row["position"] for row in left] == [3, 4]
    assert shop.seen("mails") == [2]
    assert unasked.exit_code == 2
    assert "to drop all that consumer 'mails' parked, add --yes" in unasked.stderr
    assert (rest.exit_code, json.loads(rest.stdout)) == (0, {"did": [3, 4], "not_parked": []})


def test_all_parked_events_are_tried_again(howdah, shop):
    shop.append(*['{"bad": 1}'] * 3)
    shop.catch_up()
    shop.conn.execute("insert into mended default values")

    result = howdah("consumers", "parked", "retry", "mails", "--all")
    shop.catch_up()

    assert result.stdout == "to be tried again: 3 of 3 events\n"
    assert shop.seen("mails") == [1, 2, 3]
    assert howdah("consumers", "parked", "list", "mails").stdout == "no parked events\n"
