"""Tokens: their form, and that nothing is kept that could be used (S4)."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.control_plane.tokens import ALPHABET, fingerprint, is_token, make
from howdah.errors import ConfigError
from kit.node import eventually

pytestmark = pytest.mark.anyio


def test_a_token_has_a_prefix_256_bits_and_a_checksum():
    for sort in ("api", "node"):
        token = make(sort)
        assert re.fullmatch(rf"hwd_{sort}_[0-9A-Za-z]{{49}}", token)
        assert is_token(token)
        assert is_token(token, sort)
        assert not is_token(token, "node" if sort == "api" else "api")
    assert 62**43 > 2**256
    assert len({make() for _ in range(1000)}) == 1000


@given(st.integers(8, 56), st.sampled_from(ALPHABET))
def test_a_mistyped_token_is_known_by_sight(index, letter):
    token = make()
    wrong = token[:index] + letter + token[index + 1 :]
    assert is_token(wrong) == (wrong == token)


@given(st.text(alphabet=string.printable + "é\x00", max_size=80))
def test_other_text_is_no_token(text):
    assert not is_token(text)
    assert not is_token("hwd_api_" + text) or re.fullmatch("[0-9A-Za-z]{49}", text)


def test_a_token_of_one_sort_does_not_become_the_other():
    assert not is_token(make("node").replace("_node_", "_api_"))


async def test_no_token_is_kept_in_any_table(plane, conn):
    token, row = await plane.store.create("kept?", ["work", "read"], queues=["default"])
    assert token.startswith(row.hint)
    assert len(row.hint) == 12  # the prefix and four of 43 characters
    worker = await plane.worker(token=token, queues=["default"])
    job = await plane.enqueue()
    await worker.one()
    await worker.beat()
    await plane.ask("POST", f"/jobs/{job}/cancel")

    tables = await conn.fetch(
        "select c.oid::regclass::text as name from pg_class c where relnamespace = 'howdah'::regnamespace"
        " and relkind in ('r', 'p', 'v')"
    )
    assert len(tables) > 15
    for table in tables:
        for found in await conn.fetch(f"select t::text as row from {table['name']} t"):
            for secret in (token, token[12:40], worker.credential, worker.credential[13:40]):
                assert secret not in found["row"], table["name"]
    assert await conn.fetchval("select hash from howdah.api_token where id = $1", row.id) == fingerprint(token)
    kept = await conn.fetchval("select credential from howdah.node where id = $1", worker.id)
    assert kept == fingerprint(worker.credential)


async def test_tokens_are_listed_without_themselves_and_with_their_last_use(plane):
    token, made = await plane.store.create("ci", ["enqueue"], expires=60)
    assert made.used_at is None
    await plane.ask("POST", "/jobs", {"kind": "noop"}, token=token)

    async def used():
        return next(row for row in await plane.store.list() if row.id == made.id).used_at

    assert await eventually(used)
    rows = await plane.store.list()
    assert rows[0].id == made.id
    assert token not in str(rows)
    await plane.store.revoke(made.id)
    await plane.store.revoke(made.id)
    assert next(row for row in await plane.store.list() if row.id == made.id).state == "revoked"


async def test_what_cannot_be_a_token_is_refused(plane):
    for wrong in (
        {"scopes": []},
        {"scopes": ["root"]},
        {"name": "", "scopes": ["read"]},
        {"name": "a\nb", "scopes": ["read"]},
        {"scopes": ["read"], "queues": []},
        {"scopes": ["read"], "queues": ["x"] * 101},
        {"scopes": ["read"], "queues": ["\x00"]},
        {"scopes": ["read"], "expires": 0},
        {"scopes": ["read"], "expires": float("nan")},
    ):
        with pytest.raises(ConfigError):
            await plane.store.create(**{"name": "t", **wrong})
    with pytest.raises(ConfigError, match="no token 999"):
        await plane.store.revoke(999)


def test_the_page_names_tests_that_exist():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "howto" / "secure-the-fleet.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", page)
    assert {"S1", "S2", "S3", "S4", "S8", "S10", "S11", "S14"} <= set(re.findall(r"^\| (S\d+) \|", page, re.MULTILINE))
    for file, test in named:
        text = (root / "tests" / "control_plane" / file).read_text(encoding="utf-8")
        assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), test
