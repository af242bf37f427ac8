"""Who has to go: the worked examples of the preemption specification, sections 5 and 7.7, and the rules around them."""

import msgspec
import pytest

from extender.model.events import ClusterQueueSeen
from extender.model.quota import StopPolicy
from tests.engine.drawing import CLASSICAL, REFERENCE, Lab

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

    assert lab.victims() == {"mine": OWN}


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
