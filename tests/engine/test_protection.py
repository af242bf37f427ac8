"""Whether one workload may lose its node to another, by the rules of quota."""

import msgspec
import pytest

from extender.model.events import ClusterQueueGone, WorkloadSeen
from extender.model.names import ClusterQueueName, WorkloadUid
from tests.engine.drawing import Lab

DRAWING = """
K
  a 4 within={within} reclaim={reclaim}
  b 2
alone 4
"""


def lab(within: str = "never", reclaim: str = "never") -> Lab:
    """Queue b borrows by b1 and b2."""
    made = Lab(DRAWING.format(within=within, reclaim=reclaim))
    made.runs("high", "a", 1, priority=5)
    made.runs("old", "a", 1, created=1)
    made.runs("young", "a", 1, created=9)
    made.runs("b1", "b", 2)
    made.runs("b2", "b", 1, priority=5)
    made.runs("stranger", "alone", 1)
    made.decide()
    return made


@pytest.mark.parametrize(
    ("within", "preemptor", "victim", "want"),
    [
        ("never", "high", "old", False),
        ("lower", "high", "old", True),
        ("lower", "old", "high", False),
        ("lower", "old", "young", False),
        ("newer", "old", "young", True),
        ("newer", "young", "old", False),
    ],
)
def test_in_one_queue(within, preemptor, victim, want):
    assert lab(within=within).engine.may_preempt(WorkloadUid(preemptor), WorkloadUid(victim)) is want


@pytest.mark.parametrize(
    ("reclaim", "preemptor", "victim", "want"),
    [
        ("never", "high", "b1", False),
        ("lower", "high", "b1", True),
        ("lower", "old", "b2", False),
        ("any", "old", "b2", True),
        ("any", "old", "stranger", False),
        ("any", "b1", "old", False),
    ],
)
def test_between_queues(reclaim, preemptor, victim, want):
    assert lab(reclaim=reclaim).engine.may_preempt(WorkloadUid(preemptor), WorkloadUid(victim)) is want


def test_who_is_within_nominal_keeps_its_node():
    made = lab(reclaim="any")
    made.gone("b2")
    made.decide()

    assert not made.engine.may_preempt(WorkloadUid("old"), WorkloadUid("b1"))


def test_who_holds_no_quota_or_is_leaving_is_not_protected():
    made = lab()
    made.apply(WorkloadSeen(msgspec.structs.replace(made.records["b1"], evicted=True)))

    assert made.engine.may_preempt(WorkloadUid("high"), WorkloadUid("unknown"))
    assert made.engine.may_preempt(WorkloadUid("high"), WorkloadUid("b1"))


def test_who_has_no_quota_or_no_queue_takes_from_nobody():
    made = lab(within="lower")
    made.apply(ClusterQueueGone(ClusterQueueName("a")))
    made.decide()

    assert not made.engine.may_preempt(WorkloadUid("unknown"), WorkloadUid("old"))
    assert not made.engine.may_preempt(WorkloadUid("high"), WorkloadUid("old"))
