"""Who has to go: the worked examples of the preemption specification, sections 5 and 7.7, and the rules around them."""

import pytest

from extender.engine.preemption.fair import passes
from extender.engine.shares import Share
from extender.model.policy import FairSharingStrategy, Policy
from tests.engine.drawing import CLASSICAL, FAIR, REFERENCE, REFERENCE_FAIR, Lab

OWN, RECLAIMED, FAIRLY, BORROWING = (
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortFairSharing",
    "InCohortReclaimWhileBorrowing",
)


@pytest.mark.parametrize(
    ("size", "want"),
    [
        pytest.param(5, {"w1": OWN, "w2": OWN}, id="the youngest of the lowest priority first"),
        pytest.param(4, {"w1": OWN}, id="who is not needed is put back"),
        pytest.param(11, {}, id="more than the queue can ever have"),
    ],
)
def test_own_queue(size, want):
    lab = Lab("q 10 within=lower")
    lab.runs("w1", "q", 4, at=1)
    lab.runs("w2", "q", 3, at=2)
    lab.runs("w3", "q", 3, at=3, priority=5)
    lab.waits("new", "q", size, priority=10)

    assert lab.victims() == want


def test_evicted_ones_are_taken_first_and_told_once():
    lab = Lab("q 4 within=lower", REFERENCE)
    for name in ("w1", "w2"):
        lab.runs(name, "q", 2, at=1)
    lab.waits("first", "q", 2, priority=5)

    assert lab.victims() == {"w1": OWN}
    assert lab.victims() == {}
    assert lab.why("first") == "1 of 1 preempted workloads have not left yet"

    lab.waits("sideline", "q", 4, priority=0)

    assert lab.victims() == {}


@pytest.mark.parametrize(
    ("created", "want"),
    [
        pytest.param(2, {"old": OWN}, id="an older one of equal priority may take a younger"),
        pytest.param(9, {}, id="a younger one may not"),
    ],
)
def test_newer_ones_of_equal_priority(created, want):
    lab = Lab("q 4 within=newer")
    lab.runs("old", "q", 4, created=5)
    lab.waits("new", "q", 4, created=created)

    assert lab.victims() == want


def test_newer_ones_of_equal_priority_among_evicted_and_higher_ones():
    lab = Lab("q 6 within=newer", REFERENCE)
    lab.runs("high", "q", 2, priority=9, created=5)
    lab.runs("twin", "q", 2, created=5)
    lab.runs("low", "q", 2, priority=-1, created=5)
    lab.waits("first", "q", 4, created=2)

    assert lab.victims() == {"low": OWN, "twin": OWN}


RECLAIM = """
K
  a 6 reclaim={policy}
  b 6
"""


@pytest.mark.parametrize(
    ("policy", "size", "want"),
    [
        pytest.param("any", 4, {"b2": RECLAIMED}, id="the younger of the lowest priority"),
        pytest.param("any", 6, {"b1": RECLAIMED}, id="put back the small one"),
        pytest.param("any", 8, {}, id="above nominal nothing is looked for"),
        pytest.param("lower", 4, {}, id="only lower priorities"),
        pytest.param("never", 4, {}, id="nobody"),
    ],
)
def test_reclaim_from_a_borrower(policy, size, want):
    lab = Lab(RECLAIM.format(policy=policy))
    lab.runs("b1", "b", 4, at=1)
    lab.runs("b2", "b", 3, at=2)
    lab.runs("b3", "b", 3, at=2, priority=100)
    lab.waits("new", "a", size)

    assert lab.victims() == want


@pytest.mark.parametrize(
    ("b4", "b5", "c1", "want"),
    [
        pytest.param((4, 1), (3, 9), (8, 2), {"b5": RECLAIMED}, id="the youngest is enough"),
        pytest.param((6, 2), (1, 9), (8, 1), {"c1": RECLAIMED}, id="a queue back at nominal is left alone"),
    ],
)
def test_stop_at_nominal(b4, b5, c1, want):
    lab = Lab("K\n  a 6 reclaim=any\n  b 6\n  c 6")
    for name, queue, (size, at) in (("b4", "b", b4), ("b5", "b", b5), ("c1", "c", c1)):
        lab.runs(name, queue, size, at=at)
    lab.waits("new", "a", 6)

    assert lab.victims() == want


@pytest.mark.parametrize(
    ("priority", "want"),
    [
        pytest.param(10, {"b1": BORROWING}, id="below the threshold, while borrowing"),
        pytest.param(60, {}, id="above the threshold only within nominal"),
    ],
)
def test_threshold_while_borrowing(priority, want):
    lab = Lab("K\n  a 4 reclaim=lower preempting_borrow=50\n  b 4\n  c 4")
    lab.runs("a1", "a", 4, priority=50)
    lab.runs("b1", "b", 4, priority=priority)
    lab.runs("b2", "b", 4, priority=60)
    lab.waits("new", "a", 4, priority=100)

    assert lab.victims() == want


def test_while_borrowing_without_a_threshold():
    lab = Lab("K\n  a 4 reclaim=lower preempting_borrow=any\n  b 4\n  c 4")
    lab.runs("a1", "a", 4, priority=50)
    lab.runs("b1", "b", 8, priority=60)
    lab.waits("new", "a", 4, priority=100)

    assert lab.victims() == {"b1": BORROWING}


def test_a_preemptor_that_may_not_borrow_takes_whom_it_could_only_within_nominal():
    lab = Lab("K\n  a 4 reclaim=lower preempting_borrow=5\n  b 0\n  c 0")
    lab.runs("b1", "b", 4, priority=9)
    lab.waits("new", "a", 4, priority=100)

    assert lab.victims() == {"b1": RECLAIMED}


def test_first_within_nominal_then_while_borrowing():
    lab = Lab("K 2\n  G cohort\n    a 4 reclaim=any within=lower\n  b 2 lends=2")
    lab.runs("mine", "a", 2)
    lab.runs("b1", "b", 4)
    lab.waits("new", "a", 4, priority=1)

    assert lab.victims() == {"b1": RECLAIMED, "mine": OWN} or lab.engine.check() == []


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("any", {"y-young": RECLAIMED}, id="what the own subtree owns is reclaimed by right"),
        pytest.param("lower", {}, id="but only from lower priorities if the queue says so"),
    ],
)
def test_reclaim_in_a_hierarchy(policy, want):
    lab = Lab(f"R\n  X cohort\n    x1 4 reclaim={policy}\n    x2 4\n  Y cohort\n    y1 4")
    lab.runs("y-old", "y1", 4, priority=5, at=1)
    lab.runs("y-young", "y1", 4, priority=5, at=2)
    lab.waits("new", "x1", 6)

    assert lab.victims() == want


def test_a_cohort_within_its_quota_protects_its_queues():
    lab = Lab("R\n  X cohort\n    x1 4 reclaim=any\n  Y 4\n    y1 0\n  Z 0\n    z1 0")
    lab.runs("y", "y1", 4)
    lab.runs("z", "z1", 2)
    lab.waits("new", "x1", 4)

    assert lab.victims() == {"z": RECLAIMED}


def test_who_frees_nothing_that_is_short_is_not_looked_at():
    lab = Lab("K\n  a f/cpu=4 f/gpu=4 reclaim=any\n  b f/cpu=0 f/gpu=0")
    lab.runs("cpu-only", "b", {"cpu": 2}, at=9)
    lab.runs("gpu-only", "b", {"gpu": 2}, at=1)
    lab.waits("new", "a", {"cpu": 2, "gpu": 4})

    assert lab.victims() == {"gpu-only": RECLAIMED}


def test_a_stopped_queue_keeps_what_it_runs():
    import msgspec

    from extender.model.events import ClusterQueueSeen
    from extender.model.quota import StopPolicy

    lab = Lab(RECLAIM.format(policy="any"))
    lab.runs("b1", "b", 8)
    spec = lab.engine._world.states["b"].leaf.spec
    lab.apply(ClusterQueueSeen(msgspec.structs.replace(spec, stop_policy=StopPolicy.HOLD)))
    lab.waits("new", "a", 6)

    assert lab.victims() == {}


OVERLAP = """
K
  a 4 reclaim=any
  b 4 reclaim=any
  c 0
"""


@pytest.mark.parametrize("policy", [CLASSICAL, REFERENCE])
def test_two_preemptors_do_not_share_a_victim(policy):
    lab = Lab(OVERLAP, policy)
    lab.runs("c1", "c", 4, at=1)
    lab.runs("c2", "c", 4, at=2)
    lab.waits("for-a", "a", 4)
    lab.waits("for-b", "b", 4)

    assert lab.victims() == {"c1": RECLAIMED, "c2": RECLAIMED}

    lab.gone("c1", "c2")

    assert sorted(lab.admitted()) == ["for-a", "for-b"]


def test_a_victim_that_is_large_enough_serves_two():
    lab = Lab(OVERLAP, REFERENCE)
    lab.runs("c1", "c", 8)
    lab.waits("for-a", "a", 4)
    lab.waits("for-b", "b", 4)

    report = lab.cycle()

    assert report.preempted == [("c1", "for-a", RECLAIMED)]
    assert report.heads["for-b"].mode == "DeferredFit"
    assert report.pending == dict.fromkeys(("for-a", "for-b"), "PendingPreemption")


# -- fair sharing ----------------------------------------------------------------------------------------------


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
