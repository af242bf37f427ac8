"""Victims under fair sharing: the worked examples of the preemption specification, section 7.7, and around them."""

import pytest

from extender.engine.preemption.fair import passes
from extender.engine.shares import Share
from extender.model.policy import FairSharingStrategy, Policy
from tests.engine.drawing import FAIR, REFERENCE_FAIR, Lab

OWN, RECLAIMED, FAIRLY = "InClusterQueue", "InCohortReclamation", "InCohortFairSharing"


def test_convergence_to_the_weights():
    lab = Lab("K 12\n  A 0\n  B 0 weight=2 reclaim=any", FAIR)
    for number in range(4):
        lab.runs(f"a{number}", "A", 2, at=number)
    for number in range(2):
        lab.runs(f"b{number}", "B", 2)
    for number in range(3):
        lab.waits(f"new{number}", "B", 2)
    victims = []
    for _ in range(5):
        found = lab.victims()
        victims += sorted(found.items())
        lab.gone(*found)

    assert victims == [("a3", FAIRLY), ("a2", FAIRLY)]
    assert {name: lab.engine.view(name).usage[0].used for name in "AB"} == {"A": 4, "B": 8}


@pytest.mark.parametrize(
    ("strategies", "want"),
    [
        pytest.param(FAIR.fair_sharing, {"big": FAIRLY}, id="the second strategy lets it pass"),
        pytest.param(FAIR.fair_sharing[:1], {}, id="the first alone does not"),
        pytest.param(FAIR.fair_sharing[1:], {"big": FAIRLY}, id="nor does it have to"),
    ],
)
def test_a_large_workload_and_the_strategies(strategies, want):
    lab = Lab("K 12\n  A 0\n  B 0 reclaim=any", Policy(fair_sharing=strategies))
    lab.runs("big", "A", 10)
    lab.waits("new", "B", 4)

    assert lab.victims() == want


def test_within_nominal_no_share_is_compared():
    lab = Lab("K\n  A 5\n  B 5 reclaim=any", FAIR)
    for number in range(5):
        lab.runs(f"a{number}", "A", 2, at=number)
    lab.waits("new", "B", 4)

    assert lab.victims() == {"a3": RECLAIMED, "a4": RECLAIMED}


@pytest.mark.parametrize(
    ("size", "want"),
    [
        pytest.param(2, {"h-young": FAIRLY}, id="the first strategy, between the children of the root"),
        pytest.param(3, {"h-young": FAIRLY}, id="the second one"),
    ],
)
def test_shares_of_a_hierarchy(size, want):
    lab = Lab("R 12\n  G weight=2\n    g1 0 reclaim=any\n    g2 0\n  H cohort\n    h1 0", FAIR)
    lab.runs("g-1", "g1", 2)
    lab.runs("g-2", "g2", 4)
    lab.runs("h-old", "h1", 6 - size, at=1)
    lab.runs("h-young", "h1", size, at=2)
    lab.waits("new", "g1", 2)

    assert lab.victims() == want


def test_weight_0_takes_only_from_weight_0():
    lab = Lab("K 4\n  A 0 weight=0 reclaim=any\n  B 0", FAIR)
    lab.runs("b", "B", 4)
    lab.waits("new", "A", 2)

    assert lab.victims() == {}

    lab = Lab("K 4\n  A 0 weight=0 reclaim=any\n  B 0 weight=0", FAIR)
    lab.runs("b1", "B", 2)
    lab.runs("b2", "B", 2)
    lab.waits("new", "A", 2)

    assert lab.victims() == {"b1": FAIRLY}


def test_own_workloads_are_taken_when_the_own_share_is_the_largest():
    lab = Lab("K 8\n  A 0 within=lower reclaim=any\n  B 0", FAIR)
    lab.runs("mine", "A", 6)
    lab.runs("yours", "B", 2)
    lab.waits("new", "A", 4, priority=1)

    assert lab.victims() == {"mine": OWN}


def test_a_queue_without_cohort_preempts_its_own():
    lab = Lab("alone 4 within=lower", FAIR)
    lab.runs("a", "alone", 2, at=1)
    lab.runs("b", "alone", 2, at=2)
    lab.waits("new", "alone", 4, priority=1)

    assert lab.victims() == {"a": OWN, "b": OWN}


def test_fair_search_in_vain_evicts_nobody():
    lab = Lab("K 4\n  A 0 reclaim=any\n  B 4", FAIR)
    lab.runs("b", "B", 4)
    lab.runs("more", "B", 2)
    lab.waits("new", "A", 8)

    assert lab.victims() == {}


def test_equal_shares_of_sibling_cohorts_end_with_the_name():
    drawing = "R 8\n  Z 0\n    z 0\n  Y 0\n    y 0\n  X 0\n    x 0 reclaim=any"
    for order in (("z", "y"), ("y", "z")):
        lab = Lab(drawing, REFERENCE_FAIR)
        for queue in order:
            lab.runs(f"{queue}1", queue, 2, at=1)
            lab.runs(f"{queue}2", queue, 2, at=1)
        lab.waits("new", "x", 2)

        assert lab.victims() == {"y1": FAIRLY}


def test_a_hierarchy_is_searched_branch_by_branch():
    lab = Lab(
        """
        R 6
          X 0
            x1 0
            x2 0
          Y 4
            y1 0
            y2 0
          Z 0
            z 4 reclaim=any within=lower
          w 2
        """,
        FAIR,
    )
    for name, queue, size in (
        ("x1-a", "x1", 2),
        ("x1-b", "x1", 2),
        ("x2-a", "x2", 1),
        ("y1-a", "y1", 3),
        ("y2-a", "y2", 1),
        ("w-a", "w", 3),
        ("w-b", "w", 1),
        ("z-low", "z", 2),
    ):
        lab.runs(name, queue, size)
    lab.waits("first", "z", 3, priority=1)
    first = lab.victims()
    lab.gone(*first)
    lab.decide()
    lab.waits("second", "z", 4, priority=2)
    second = lab.victims()

    assert first == {"x1-a": FAIRLY}
    assert set(second.values()) <= {OWN, FAIRLY}


def test_a_branch_that_no_longer_borrows_is_left_alone():
    lab = Lab("R\n  X 1\n    x1 0\n    x2 0\n  Y 0\n    y 2\n  z 6 reclaim=any", FAIR)
    lab.runs("x1", "x1", 2)
    lab.runs("x2", "x2", 2)
    lab.runs("y1", "y", 3)
    lab.runs("y2", "y", 2)
    lab.waits("new", "z", 6)

    assert lab.victims() == dict.fromkeys(("x1", "x2", "y1"), RECLAIMED)


def test_nobody_to_take_under_fair_sharing():
    lab = Lab("K\n  a 4\n  b 0", FAIR)
    lab.runs("b", "b", 4)
    lab.waits("new", "a", 2)

    assert lab.victims() == {}


def test_a_queue_beside_a_cohort_gives_way_if_its_share_is_larger():
    lab = Lab("R 6\n  X 0\n    x 0\n  y 0\n  z 0 reclaim=any", FAIR)
    lab.runs("in-x", "x", 2)
    lab.runs("in-y", "y", 4)
    lab.waits("new", "z", 1)

    assert lab.victims() == {"in-y": FAIRLY}


def test_who_is_not_needed_is_put_back_under_fair_sharing():
    lab = Lab("K\n  a 6 reclaim=any\n  b 0\n  c 0", FAIR)
    lab.runs("small", "b", 1, at=9)
    lab.runs("large", "b", 5, at=1)
    lab.waits("new", "a", 5)

    assert lab.victims() == {"large": RECLAIMED}


def test_usage_of_a_flavor_that_a_queue_no_longer_lists_is_no_share():
    lab = Lab("K\n  a red/gpu=4 reclaim=any\n  b red/gpu=0", FAIR)
    lab.runs("stale", "b", 4, flavor="red")
    lab.decide()
    lab.draw("K\n  b blue/gpu=0")
    lab.waits("new", "a", 2)

    assert lab.victims() == {}


def test_strategies():
    low, high = Share(endless=False, value=1.0), Share(endless=False, value=2.0)
    final, initial = FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, FairSharingStrategy.LESS_THAN_INITIAL_SHARE

    assert passes(final, low, high, low)
    assert not passes(final, high, high, low)
    assert passes(initial, low, high, low)
    assert not passes(initial, high, high, low)
