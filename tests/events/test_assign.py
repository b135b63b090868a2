"""Which node consumes what: balanced, sticky, and only where it can run."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from howdah.events.leader import assign

NAMES = ("Analytics", "Billing", "Email", "Inventory", "Orders", "Shipping")
TABLES = {
    1: [["Analytics", "Billing", "Email", "Inventory", "Orders", "Shipping"]],
    2: [["Analytics", "Email", "Orders"], ["Billing", "Inventory", "Shipping"]],
    3: [["Analytics", "Inventory"], ["Billing", "Orders"], ["Email", "Shipping"]],
    6: [["Analytics"], ["Billing"], ["Email"], ["Inventory"], ["Orders"], ["Shipping"]],
    8: [["Analytics"], ["Billing"], ["Email"], ["Inventory"], ["Orders"], ["Shipping"], [], []],
}


def fresh(*names):
    return {(name, 0): None for name in names or NAMES}


def equal(nodes, names=NAMES):
    """Nodes that can all consume everything."""
    return {node: set(names) for node in nodes}


def table(plan, nodes):
    return [[name for (name, _), node in plan.items() if node == each] for each in nodes]


def moves(before, after):
    return sum(before[part] != node for part, node in after.items())


def loads(plan, able):
    count = Counter(node for node in plan.values() if node is not None)
    return [count[node] for node in able]


@pytest.mark.parametrize("nodes", TABLES)
def test_six_consumers_over_fresh_nodes(nodes):
    assert table(assign(fresh(), equal(range(1, nodes + 1))), range(1, nodes + 1)) == TABLES[nodes]


@pytest.mark.parametrize("nodes", TABLES)
def test_the_first_nodes_are_those_with_the_lowest_ids_whatever_the_order(nodes):
    ids = [900 - 7 * number for number in range(nodes)]
    backwards = dict(reversed(fresh().items()))

    assert table(assign(backwards, equal(ids)), sorted(ids)) == TABLES[nodes]


def test_growing_from_one_node_to_two_gives_the_table_of_two():
    one = assign(fresh(), equal([1]))
    two = assign(one, equal([1, 2]))

    assert table(two, [1, 2]) == TABLES[2]
    assert moves(one, two) == 3


def test_a_full_node_gives_to_the_emptiest_so_that_nothing_moves_twice():
    stands = {("a", 0): 1, ("b", 0): 1, ("c", 0): 1, ("d", 0): 2, ("e", 0): 3, ("f", 0): 4}

    assert moves(stands, assign(stands, equal(range(1, 6), "abcdef"))) == 1


def test_a_third_node_takes_one_from_each_and_leaves_the_rest_where_it_is():
    two = assign(fresh(), equal([1, 2]))
    three = assign(two, equal([1, 2, 3]))

    assert moves(two, three) == 2
    assert sorted(loads(three, [1, 2, 3])) == [2, 2, 2]


def test_when_a_node_goes_only_its_consumers_move():
    three = assign(fresh(), equal([1, 2, 3]))
    without = assign(three, equal([1, 3]))

    assert {part for part, node in three.items() if without[part] != node} == {("Billing", 0), ("Orders", 0)}
    assert sorted(loads(without, [1, 3])) == [3, 3]


def test_a_standby_takes_over_all_that_a_dead_node_had():
    seven = assign(fresh(), equal(range(1, 8)))
    without = assign(seven, equal([1, 2, 4, 5, 6, 7]))

    assert without == {**seven, ("Email", 0): 7}


def test_a_node_that_is_started_again_takes_the_place_of_the_old_one():
    three = assign(fresh(), equal([1, 2, 3]))
    again = assign(three, equal([1, 3, 4]))

    assert again == {part: 4 if node == 2 else node for part, node in three.items()}


def test_nobody_is_there():
    assert assign({("a", 0): 5, ("b", 0): None}, {}) == {("a", 0): None, ("b", 0): None}
    assert assign({}, equal([1, 2])) == {}


def test_a_consumer_goes_only_to_a_node_that_has_it():
    plan = assign(fresh("a", "b", "c"), {1: {"a"}, 2: {"a", "b"}})

    assert plan == {("a", 0): 1, ("b", 0): 2, ("c", 0): None}


def test_a_node_that_lost_a_consumer_in_a_deployment_gives_it_up():
    plan = assign({("a", 0): 1, ("b", 0): 1}, {1: {"a"}, 2: {"b"}})

    assert plan == {("a", 0): 1, ("b", 0): 2}


def test_room_is_made_through_a_third_node_when_the_full_one_cannot_give_to_the_empty_one():
    able = {1: {"a", "b"}, 2: {"b", "c"}, 3: {"c"}}
    stands = {("a", 0): 1, ("b", 0): 1, ("c", 0): 2}

    assert assign(stands, able) == {("a", 0): 1, ("b", 0): 2, ("c", 0): 3}


def test_partitions_are_spread_like_consumers():
    parts = {("orders", part): None for part in range(8)} | {("mail", 0): None}
    plan = assign(parts, equal([1, 2, 3], ["orders", "mail"]))

    assert sorted(loads(plan, [1, 2, 3])) == [3, 3, 3]
    assert [plan["orders", part] for part in range(8)] == [2, 3, 1, 2, 3, 1, 2, 3]


# ---------------------------------------------------------------- whatever the question

nodes = st.sets(st.integers(1, 40), min_size=1, max_size=9)
parts = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), min_size=1, max_size=20, unique=True)


@st.composite
def equals(draw):
    """Any state of affairs among nodes that can all do everything; some owners may be gone."""
    live = draw(nodes)
    owner = st.one_of(st.none(), st.sampled_from(sorted(live)), st.integers(41, 44))
    return {part: draw(owner) for part in draw(parts)}, equal(live, "abcdefgh")


@st.composite
def mixed(draw, most_nodes=3, most_parts=6):
    """Few of everything, each node with some of the consumers."""
    names = st.sets(st.sampled_from("abcd"))
    able = draw(st.dictionaries(st.integers(1, 9), names, min_size=1, max_size=most_nodes))
    chosen = draw(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), min_size=1, max_size=most_parts, unique=True)
    )
    owner = st.one_of(st.none(), st.sampled_from(sorted(able)), st.just(99))
    return {part: draw(owner) for part in chosen}, able


@settings(deadline=None)
@given(equals())
def test_equal_nodes_are_balanced_within_one(question):
    owners, able = question
    held = loads(assign(owners, able), able)

    assert sum(held) == len(owners)
    assert max(held) - min(held) <= 1


@settings(deadline=None)
@given(equals())
def test_among_equal_nodes_no_plan_moves_less(question):
    owners, able = question
    fewest, more = divmod(len(owners), len(able))
    held = sorted(loads({part: node for part, node in owners.items() if node in able}, able), reverse=True)
    # the nodes that have most keep one more than the others, so that they give the least
    stay = sum(min(have, fewest + (number < more)) for number, have in enumerate(held))

    assert moves(owners, assign(owners, able)) == len(owners) - stay


@settings(deadline=None)
@given(mixed())
def test_among_any_nodes_no_plan_is_better_balanced(question):
    """Against every plan there is."""
    owners, able = question
    homes = [[node for node in able if part[0] in able[node]] or [None] for part in owners]
    plan = assign(owners, able)

    assert all(node in home for (_, node), home in zip(((part, plan[part]) for part in owners), homes, strict=True))
    assert _cost(plan.values()) == min(_cost(each) for each in product(*homes))


@settings(deadline=None)
@given(mixed(most_nodes=6, most_parts=12))
def test_a_plan_that_is_good_stays(question):
    owners, able = question
    plan = assign(owners, able)

    assert assign(plan, able) == plan


@settings(deadline=None)
@given(mixed(most_nodes=6, most_parts=12), st.randoms(use_true_random=False))
def test_the_same_question_has_the_same_answer(question, chance):
    owners, able = question
    shuffled, others = list(owners.items()), list(able.items())
    chance.shuffle(shuffled)
    chance.shuffle(others)

    assert list(assign(dict(shuffled), dict(others)).items()) == list(assign(owners, able).items())


def _cost(owners):
    """The more even, the less."""
    return sum(load**2 for load in Counter(node for node in owners if node is not None).values())
