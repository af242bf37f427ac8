"""Preemption comes to an end, also where every single decision is right: ADR 0018."""

import pytest

from extender.engine import loops
from extender.engine.loops import Kind, Loops, kind_of
from extender.model.effects import Evict, EvictionReason
from extender.model.names import ClusterQueueName
from extender.model.workload import Workload
from tests.engine.drawing import FAIR, REFERENCE_FAIR, Lab, workload

FAIRLY = EvictionReason.IN_COHORT_FAIR_SHARING
BY_PRIORITY = EvictionReason.IN_CLUSTER_QUEUE
AS_ITS_OWN = EvictionReason.IN_COHORT_RECLAMATION

CIRCLE = """
K 2
  a 2 within=lower reclaim=any
  b 2 reclaim=any
"""
"""big (6 of a) goes before the small ones of a; wide (5 of b) has the smaller share; two small ones own their room."""


def circle(policy) -> Lab:
    lab = Lab(CIRCLE, policy)
    lab.runs("big", "a", 6, priority=10)
    lab.waits("wide", "b", 5)
    lab.waits("small", "a", 1)
    lab.waits("little", "a", 1)
    return lab


def rounds(lab: Lab, most: int) -> list[tuple[str, str]]:
    """Who was taken, and why, until nothing moves; victims take a round to go, and come back as new workloads."""
    taken: list[tuple[str, str]] = []
    going: list[Workload] = []
    for _ in range(most):
        told = [effect for effect in lab.decide() if isinstance(effect, Evict)]
        if not told and not going:
            return taken
        for was in going:
            lab.gone(was.uid)
            name = f"{was.name.partition('-')[0]}-{len(lab.records)}"
            lab.waits(name, was.queue.name, was.pod_sets[0].requests[0][1], priority=was.priority)
        going = [lab.records[effect.uid] for effect in told]
        taken += [(was.name.partition("-")[0], effect.reason.value) for was, effect in zip(going, told, strict=True)]
    raise AssertionError(f"no end after {len(taken)} evictions")


def running(lab: Lab, queue: str) -> list[str]:
    return [one.workload.name.partition("-")[0] for one in lab.engine.running_in(ClusterQueueName(queue))]


def test_three_rights_that_displace_each_other_come_to_rest():
    lab = circle(FAIR)

    assert rounds(lab, 50) == [("big", FAIRLY.value)]
    assert (running(lab, "a"), running(lab, "b")) == (["big"], [])
    assert lab.why("wide") == "cohort K lends 6 gpu of f, 6 in use, 5 more needed"


def test_in_the_reference_they_go_on_for_ever():
    with pytest.raises(AssertionError, match="no end"):
        rounds(circle(REFERENCE_FAIR), 50)


@pytest.mark.parametrize(("new", "want"), [(0, False), (2, True)], ids=["as many as before", "more than before"])
def test_the_smaller_share_may_try_again_when_more_have_come(new, want):
    lab = circle(FAIR)
    rounds(lab, 50)
    lab.gone("wide")
    for number in range(new):
        lab.waits(f"new-{number}", "a", 1)
    lab.waits("wide-again", "b", 5)

    assert (("big", FAIRLY.value) in rounds(lab, 50)) is want


def test_the_smaller_share_may_try_again_when_something_ended_by_itself():
    lab = circle(FAIR)
    rounds(lab, 50)
    lab.draw("K 2\n  c 1")
    lab.runs("other", "c", 1)
    rounds(lab, 50)
    lab.gone("other")

    assert ("big", FAIRLY.value) in rounds(lab, 50)


A, B, C, D = (kind_of(name, workload(name, name)) for name in "abcd")


def graph(*edges: tuple[Kind, Kind, EvictionReason]) -> Loops:
    made = Loops()
    for taker, victim, reason in edges:
        made.note(taker, victim, reason, population=lambda: 4)
    return made


@pytest.mark.parametrize(
    ("edges", "reason", "want"),
    [
        pytest.param([], FAIRLY, False, id="nobody took anybody"),
        pytest.param([(A, B, FAIRLY)], FAIRLY, False, id="once more the same way"),
        pytest.param([(B, A, FAIRLY)], FAIRLY, True, id="it took us by its share, we may not take it by ours"),
        pytest.param([(B, C, FAIRLY), (C, A, FAIRLY)], FAIRLY, True, id="by way of a third one"),
        pytest.param([(B, C, FAIRLY), (D, A, FAIRLY)], FAIRLY, False, id="two edges that do not meet"),
        pytest.param(
            [(B, C, AS_ITS_OWN), (C, A, FAIRLY)], BY_PRIORITY, False, id="priority: the share has to give way"
        ),
        pytest.param([(B, C, AS_ITS_OWN), (C, A, BY_PRIORITY)], BY_PRIORITY, True, id="priority among stronger rights"),
        pytest.param([(B, A, BY_PRIORITY)], AS_ITS_OWN, False, id="what one owns: priority has to give way"),
        pytest.param([(B, A, AS_ITS_OWN)], AS_ITS_OWN, True, id="both own it"),
        pytest.param([(B, A, FAIRLY), (B, A, AS_ITS_OWN)], AS_ITS_OWN, True, id="the strongest right counts"),
    ],
)
def test_a_victim_is_barred_if_the_weakest_edge_of_a_circle_would_be_this_one(edges, reason, want):
    barred = graph(*edges).barred(A)

    assert (barred is not None and barred("b", workload("other", "b"), reason)) is want


def test_the_older_of_a_kind_may_always_take_the_newer():
    found = graph((A, A, BY_PRIORITY), (B, A, FAIRLY), (A, B, FAIRLY)).barred(A)

    assert found is not None
    assert not found("a", workload("other", "a"), BY_PRIORITY)


def test_the_graph_is_bounded(monkeypatch):
    monkeypatch.setattr(loops, "EDGES_MAX", 2)
    found = graph((A, B, FAIRLY), (A, C, FAIRLY))

    assert found.edges == 2

    found.note(A, D, FAIRLY, population=lambda: 4)

    assert list(found.all()) == [(D, A, 0)]


def test_a_fork_has_a_graph_of_its_own():
    lab = circle(FAIR)
    rounds(lab, 50)
    fork = lab.engine.fork()
    before = fork.digest()

    assert before == lab.engine.digest()

    lab.waits("wide-2", "b", 5)
    rounds(lab, 50)

    assert fork.digest() == before


@pytest.mark.parametrize(("edges", "want"), [([], {"low": "InCohortReclaimWhileBorrowing"}), ([1], {})])
def test_without_fair_sharing_a_victim_is_barred_too(edges, want):
    lab = Lab("K 4\n  a 0 reclaim=any preempting_borrow=any\n  b 0")
    low, high = workload("low", "b", 4), workload("high", "a", 4, priority=5)
    lab.runs("low", "b", 4)
    lab.decide()
    tree = lab.engine._world.hierarchy.leaves[ClusterQueueName("a")].tree
    assert tree is not None
    for _ in edges:
        tree.loops.note(kind_of("b", low), kind_of("a", high), AS_ITS_OWN, population=lambda: 2)
    lab.waits("high", "a", 4, priority=5)

    assert lab.victims() == want
