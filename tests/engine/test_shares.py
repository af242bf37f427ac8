"""Dominant resource shares: the worked examples of the preemption specification, section 6.4."""

import pytest

from extender.engine.ledger import add_usage
from extender.engine.shares import PUBLISHED_MAX, share
from extender.model.amounts import UNLIMITED
from extender.model.names import FlavorName, FlavorResource, ResourceName
from tests.engine.drawing import FR, Tree

HIERARCHY = """
R 12
  G weight=2
    g1 0
    g2 0
  H
    h1 0
"""


def value(tree: Tree, name: str) -> float:
    return share(tree.node(name))[1].exact()


def test_two_queues_borrow_from_their_cohort():
    tree = Tree("K 12\n  A 0\n  B 0 weight=2")
    add_usage(tree.cell("A"), 8)
    add_usage(tree.cell("B"), 4)

    assert (value(tree, "A"), value(tree, "B")) == (pytest.approx(666.667, abs=0.01), pytest.approx(166.667, abs=0.01))
    assert [share(tree.node(name))[1].published() for name in "AB"] == [667, 167]


def test_excess_of_one_flavor_is_not_netted_with_slack_of_another():
    tree = Tree("K cohort\n  A f1/cpu=10 f2/cpu=20 f1/gpu=4\n  B f1/cpu=10 f2/cpu=0 f1/gpu=4")

    def use(name: str, flavor: str, resource: str, amount: int) -> None:
        add_usage(tree.cell(name, FlavorResource(FlavorName(flavor), ResourceName(resource))), amount)

    use("A", "f1", "cpu", 12)
    use("A", "f2", "cpu", 5)
    use("A", "f1", "gpu", 5)
    use("B", "f2", "cpu", 6)

    assert (value(tree, "A"), value(tree, "B")) == (125.0, 150.0)


def test_kept_quota_is_not_lendable():
    tree = Tree("K cohort\n  A 10 lends=4\n  B 6")
    add_usage(tree.cell("B"), 9)

    assert value(tree, "B") == 300.0


def test_a_share_at_every_level():
    tree = Tree(HIERARCHY)
    for name, amount in (("g1", 2), ("g2", 4), ("h1", 6)):
        add_usage(tree.cell(name), amount)

    assert {name: round(value(tree, name), 2) for name in ("R", "G", "H", "g1", "g2", "h1")} == {
        "R": 0.0,
        "G": 250.0,
        "H": 500.0,
        "g1": 166.67,
        "g2": 333.33,
        "h1": 500.0,
    }


def test_weight_0_is_endless_as_soon_as_it_borrows():
    tree = Tree("K 12\n  A 0 weight=0\n  B 0 weight=0\n  C 0")

    assert value(tree, "A") == 0.0

    add_usage(tree.cell("A"), 1)
    add_usage(tree.cell("B"), 2)
    add_usage(tree.cell("C"), 9)

    assert share(tree.node("C"))[1] < share(tree.node("A"))[1] < share(tree.node("B"))[1]
    assert value(tree, "A") == float("inf")
    assert share(tree.node("A"))[1].published() == PUBLISHED_MAX


def test_a_share_that_64_bits_do_not_hold_is_published_as_the_largest():
    tree = Tree("K 1\n  A 0 weight=0.000000002\n  B 0")
    add_usage(tree.cell("A"), 2**62)

    assert value(tree, "A") > PUBLISHED_MAX
    assert share(tree.node("A"))[1].published() == PUBLISHED_MAX


def test_borrowing_what_nobody_lends_is_borrowing_without_a_share():
    tree = Tree("K cohort\n  A 0")
    add_usage(tree.cell("A"), 1)

    assert share(tree.node("A")) == (True, (False, 0.0))


def test_an_unlimited_queue_never_borrows():
    tree = Tree(f"K\n  A {UNLIMITED}\n  B 1")
    add_usage(tree.cell("A"), 10**12)

    assert share(tree.node("A"))[0] is False


def test_a_flavor_that_only_the_root_knows_counts_as_lendable():
    tree = Tree("R red/gpu=6 blue/gpu=4\n  X cohort\n    x red/gpu=0\n  y red/gpu=0")
    add_usage(tree.cell("x", FlavorResource(FlavorName("red"), ResourceName("gpu"))), 5)

    assert FR not in tree.node("X").cells
    assert value(tree, "x") == 500.0
