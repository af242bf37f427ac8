"""Quota up the tree: the worked examples of the quota specification, section 9, and what may go wrong."""

import pytest

from extender.engine.ledger import add_usage, available, fits, level, remove_usage, within_quota
from extender.model.amounts import NOTHING, UNLIMITED
from extender.model.names import FlavorName, FlavorResource, ResourceName
from tests.engine.drawing import FR, Lab, Tree

FLAT = """
lab
  a 10 lends=4
  b 6 borrows=5
  c 0
"""
LIMITS = """
R 4
  X 2 borrows=6 lends=7
    x1 8 lends=5
    x2 5 borrows=2
  Y 0 lends=3
    y1 6
"""
UNEVEN = """
R 3
  G 0
    H 0
      h1 5
  d 5
"""


def free(tree: Tree, *names: str) -> dict[str, int]:
    return {name: available(tree.cell(name)) for name in names}


@pytest.mark.parametrize(
    ("used", "cohort", "want"),
    [
        pytest.param([], 0, {"a": 16, "b": 10, "c": 10}, id="idle queues see what the others lend"),
        pytest.param([("a", 3)], 0, {"a": 13, "b": 10, "c": 10}, id="kept quota is used first and seen by nobody"),
        pytest.param([("a", 3), ("c", 8)], 8, {"a": 5, "b": 2, "c": 2}, id="a borrower takes from all"),
        pytest.param([("a", 3), ("c", 8), ("a", 5)], 10, {"a": 0, "b": 0, "c": 0}, id="the spill goes up"),
    ],
)
def test_a_flat_cohort(used, cohort, want):
    tree = Tree(FLAT)
    for name, amount in used:
        add_usage(tree.cell(name), amount)

    assert free(tree, "a", "b", "c") == want
    assert tree.cell("lab").usage == cohort

    for name, amount in reversed(used):
        remove_usage(tree.cell(name), amount)

    assert free(tree, "a", "b", "c") == {"a": 16, "b": 10, "c": 10}


def test_potential_is_what_is_free_when_all_are_idle():
    flat, limits = Tree(FLAT), Tree(LIMITS)

    assert {name: flat.cell(name).potential for name in "abc"} == {"a": 16, "b": 10, "c": 10}
    assert {name: limits.cell(name).potential for name in ("R", "X", "Y", "x1", "x2", "y1")} == {
        "R": 14,
        "X": 18,
        "Y": 17,
        "x1": 21,
        "x2": 7,
        "y1": 17,
    }


def test_subtree_and_local_quota_of_three_levels():
    tree = Tree(LIMITS)

    assert {name: (tree.cell(name).subtree, tree.cell(name).local) for name in ("x1", "x2", "y1", "X", "Y", "R")} == {
        "x1": (8, 3),
        "x2": (5, 0),
        "y1": (6, 0),
        "X": (12, 5),
        "Y": (6, 3),
        "R": (14, 0),
    }


def test_limits_in_the_middle_bind_step_by_step():
    tree = Tree(LIMITS)
    add_usage(tree.cell("x1"), 6)

    assert free(tree, "x1", "x2", "y1", "X", "R") == {"x1": 15, "x2": 7, "y1": 17, "X": 15, "R": 14}
    assert level(tree.cell("x1"), 9) == (1, True)

    add_usage(tree.cell("x1"), 9)

    assert (tree.cell("X").usage, tree.cell("R").usage) == (12, 7)
    assert free(tree, "x1", "x2", "y1", "X") == {"x1": 6, "x2": 6, "y1": 10, "X": 6}

    add_usage(tree.cell("y1"), 5)

    assert (tree.cell("Y").usage, tree.cell("R").usage) == (5, 9)
    assert free(tree, "x1", "x2", "y1") == {"x1": 5, "x2": 5, "y1": 5}


def test_a_quota_cut_leaves_nothing_for_anybody():
    tree = Tree("K\n  p 10 lends=6\n  q 10")
    add_usage(tree.cell("p"), 2)
    add_usage(tree.cell("q"), 15)

    assert free(tree, "K", "p") == {"K": 1, "p": 3}

    tree.redraw("K\n  p 10 lends=6\n  q 5")

    assert free(tree, "K", "p", "q") == {"K": -4, "p": -2, "q": -4}
    assert not fits([(tree.cell("p"), 1)])
    assert fits([(tree.cell("p"), 0)])


@pytest.mark.parametrize(
    ("name", "amount", "want"),
    [
        pytest.param("h1", 5, (0, True), id="own quota"),
        pytest.param("h1", 6, (3, False), id="only the root can hold it"),
        pytest.param("d", 6, (3, False), id="a queue under a tall root jumps to its height"),
        pytest.param("h1", 20, (3, False), id="nobody can hold it"),
    ],
)
def test_borrow_level_in_an_uneven_tree(name, amount, want):
    assert level(Tree(UNEVEN).cell(name), amount) == want


def test_borrow_level_of_a_cohort_with_quota_of_its_own():
    assert level(Tree(UNEVEN.replace("H 0", "H 2")).cell("h1"), 6) == (1, True)


def test_a_queue_on_its_own_has_level_0_and_nobody_above():
    assert level(Tree("alone 4").cell("alone"), 9) == (0, False)


def test_unlimited_quota_lends_without_bound():
    tree = Tree(f"K\n  u {UNLIMITED}\n  v 0")
    add_usage(tree.cell("v"), 10**15)

    assert available(tree.cell("v")) == UNLIMITED
    assert level(tree.cell("v"), 10**18) == (1, False)


def test_unlimited_quota_with_a_lending_limit_lends_nothing():
    tree = Tree(f"K\n  u {UNLIMITED} lends=100\n  v 0")

    assert tree.cell("u").local == UNLIMITED
    assert (available(tree.cell("v")), available(tree.cell("u"))) == (0, UNLIMITED)


def test_an_absurd_request_fits_once_into_unlimited_quota():
    tree = Tree(f"K {UNLIMITED}\n  v 0")

    assert fits([(tree.cell("v"), UNLIMITED)])

    add_usage(tree.cell("v"), UNLIMITED)

    assert available(tree.cell("v")) == 0

    remove_usage(tree.cell("v"), UNLIMITED)

    assert available(tree.cell("v")) == UNLIMITED


def test_a_borrowing_limit_below_an_unlimited_root():
    tree = Tree(f"K {UNLIMITED}\n  v 3 borrows=2")
    add_usage(tree.cell("v"), 4)

    assert available(tree.cell("v")) == 1
    assert available(tree.cell("K")) == UNLIMITED


def test_an_unlimited_borrowing_limit_is_none():
    tree = Tree(f"K\n  v 3 borrows={UNLIMITED} lends=1\n  w {UNLIMITED} lends=0")
    add_usage(tree.cell("v"), 1)

    assert available(tree.cell("v")) == 2
    assert NOTHING < 0


def test_flavor_resources_are_independent():
    lab = Lab("q red/cpu=4000 red/memory=8")
    lab.waits("first", "q", {"cpu": 1500, "memory": 1}, count=2)
    lab.waits("second", "q", {"cpu": 1500, "memory": 1}, count=2)

    assert lab.admitted() == ["first"]
    assert lab.why("second") == "ClusterQueue q uses 3 of its 4 cpu of red, 2 more needed"


def test_a_node_without_a_cell_is_within_quota():
    tree = Tree(FLAT)

    assert within_quota(tree.node("a"), [FlavorResource(FlavorName("x"), ResourceName("y"))])
    assert within_quota(tree.node("a"), [FR])
