"""Facts in any order, and a workload's life: waiting, assumed, confirmed, evicted, gone."""

import itertools

import msgspec
import pytest

from extender.model.effects import Admit
from extender.model.events import (
    AdmissionRefused,
    ClusterQueueGone,
    ClusterQueueSeen,
    CohortGone,
    EvictionRefused,
    FlavorGone,
    LocalQueueGone,
    NamespaceGone,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    WorkloadUid,
)
from extender.model.reasons import ReasonCode, reason
from tests.engine.drawing import REFERENCE, TEAM, Lab, admission, quota_facts, workload

ONE = "q 2"
Q = ClusterQueueName("q")
W = WorkloadUid("w")
KEY = LocalQueueKey(TEAM, LocalQueueName("q"))


def spec(lab: Lab, name: str = "q"):
    return lab.engine._world.states[ClusterQueueName(name)].leaf.spec


def change(lab: Lab, name: str = "q", **fields) -> None:
    """Edit a cluster queue."""
    lab.apply(ClusterQueueSeen(msgspec.structs.replace(spec(lab, name), **fields)))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_facts_may_come_in_any_order(order):
    facts = [*quota_facts(ONE), WorkloadSeen(workload("w", "q", 1))]
    lab = Lab()
    lab.records["w"] = workload("w", "q", 1)
    for place in order:
        lab.apply(facts[place])
        if len(lab.records) < 4:
            lab.engine.run_pass(0)

    lab.decide()

    assert lab.engine.is_charged(W)
    assert lab.engine.check() == []


def test_what_is_unknown_may_go():
    lab = Lab(ONE)
    lab.apply(
        WorkloadGone(W),
        AdmissionRefused(W, "x"),
        EvictionRefused(W, "x"),
        ClusterQueueGone(ClusterQueueName("x")),
        CohortGone(CohortName("x")),
        FlavorGone(FlavorName("x")),
        LocalQueueGone(LocalQueueKey(TEAM, LocalQueueName("x"))),
        NamespaceGone(Namespace("x")),
    )

    assert lab.decide() == ()
    assert lab.engine.cluster_queue_names() == ["q"]


def test_to_be_told_twice_is_no_work():
    lab = Lab("K 1\n  q 2")
    lab.waits("w", "q", 3)
    lab.decide()
    lab.draw("K 1\n  q 2")
    lab.apply(WorkloadSeen(lab.records["w"]), NamespaceGone(TEAM))

    assert not lab.engine.has_work


# -- a workload's life -----------------------------------------------------------------------------------------


def test_assumed_then_confirmed():
    lab = Lab(ONE)
    made = lab.waits("w", "q", 2)
    (effect,) = lab.decide(confirm=False)

    assert isinstance(effect, Admit)
    assert lab.engine.running_in(Q)[0].assumed

    lab.apply(WorkloadSeen(made))  # the watch still shows it as it was

    assert lab.engine.is_charged(W)

    lab.confirm("w")

    assert not lab.engine.running_in(Q)[0].assumed
    assert lab.decide() == ()
    assert lab.engine.workload(W).admission == effect.admission


def test_a_refused_admission_waits_again():
    lab = Lab(ONE)
    lab.waits("w", "q", 2)
    lab.decide(confirm=False)
    lab.apply(AdmissionRefused(W, "409"))

    assert not lab.engine.is_charged(W)
    assert lab.admitted() == ["w"]

    lab.apply(AdmissionRefused(W, "late"))

    assert lab.engine.is_charged(W)


def test_an_admission_that_was_taken_away_frees_its_quota():
    lab = Lab(ONE)
    lab.runs("w", "q", 2)
    lab.waits("next", "q", 2)
    lab.decide()
    lab.records["w"] = msgspec.structs.replace(lab.records["w"], admission=None)
    lab.apply(WorkloadSeen(lab.records["w"]))

    assert lab.admitted() == ["w"]


def test_a_restart_finds_everything_as_it_was():
    lab = Lab(ONE)
    lab.runs("w", "q", 2, at=7)
    lab.waits("next", "q", 1)

    assert lab.decide() == ()
    assert lab.engine.view(Q).usage[0].used == 2
    assert lab.engine.admission_of(W).at_ms == 7_000


def test_an_admission_may_change_under_way():
    lab = Lab("q red/gpu=2 blue/gpu=2")
    made = lab.runs("w", "q", 2, flavor="red")
    lab.apply(WorkloadSeen(msgspec.structs.replace(made, admission=admission(made, "q", "blue", 1))))
    lab.decide()

    assert {row.flavor: row.used for row in lab.engine.view(Q).usage} == {"blue": 2, "red": 0}


def test_an_admission_told_later_with_another_time_keeps_its_charge():
    lab = Lab("q 2 within=lower")
    made = lab.runs("w", "q", 1, at=1)
    lab.runs("v", "q", 1, at=5)
    lab.apply(WorkloadSeen(msgspec.structs.replace(made, admission=admission(made, "q", "f", 9))))
    lab.waits("high", "q", 1, priority=1)

    assert lab.victims() == {"w": "InClusterQueue"}


def test_an_eviction_in_flight_survives_another_admission():
    lab = Lab("q red/gpu=2 blue/gpu=0 within=lower")
    made = lab.runs("w", "q", 2, flavor="red")
    lab.waits("high", "q", 2, priority=1)
    lab.decide()
    lab.apply(WorkloadSeen(msgspec.structs.replace(made, admission=admission(made, "q", "blue", 1))))
    lab.decide()
    (running,) = [one for one in lab.engine.running_in(Q) if one.workload.name == "w"]

    assert (running.evicted, running.preemptor) == (True, "high")


def test_a_waiting_workload_that_turns_out_to_run_leaves_the_line():
    lab = Lab(ONE)
    made = lab.waits("w", "q", 5)
    lab.decide()
    lab.apply(WorkloadSeen(msgspec.structs.replace(made, admission=admission(made, "q", "f", 1))))
    lab.decide()

    assert lab.engine.view(Q).reserving == 1
    assert lab.engine.view(Q).pending_inadmissible == 0


def test_a_changed_workload_is_tried_again():
    lab = Lab(ONE)
    lab.waits("w", "q", 5)
    lab.decide()
    smaller = workload("w", "q", 1, created=1)
    lab.records["w"] = smaller
    lab.apply(WorkloadSeen(smaller))

    assert lab.admitted() == ["w"]


def test_a_waiting_workload_may_move_to_another_queue():
    lab = Lab("q 0\np 4")
    lab.waits("w", "q", 2)
    lab.decide()
    moved = workload("w", "p", 2, created=1)
    lab.records["w"] = moved
    lab.apply(WorkloadSeen(moved))

    assert lab.admitted() == ["w"]
    assert lab.engine.view(ClusterQueueName("p")).reserving == 1


def test_the_sticky_one_stays_so_when_it_changes():
    lab = Lab("q 2 within=lower")
    lab.runs("low", "q", 2)
    lab.waits("mid", "q", 2, priority=1)
    lab.decide()
    lab.waits("high", "q", 2, priority=5)
    lab.records["mid"] = workload("mid", "q", 1, priority=1, created=2)
    lab.apply(WorkloadSeen(lab.records["mid"]))

    assert lab.engine.workloads_of(Q)[0].workload.name == "mid"


def test_held_workloads_wait_outside_with_their_own_reason():
    lab = Lab(ONE)
    made = lab.waits("w", "q", 1)
    held = msgspec.structs.replace(made, held=reason(ReasonCode.GANG_INCOMPLETE, have=1, want=2, group="g"))
    lab.apply(WorkloadSeen(held))

    assert lab.admitted() == []
    assert lab.why("w") == "1 of 2 pods of group g exist"
    assert [(one.position, one.parked) for one in lab.engine.workloads_of(Q)] == [(0, True)]

    lab.apply(WorkloadSeen(made))

    assert lab.admitted() == ["w"]


def test_evicted_by_others_counts_as_evicted():
    lab = Lab("q 2 within=lower", REFERENCE)
    lab.runs("young", "q", 1, at=9)
    old = lab.runs("old", "q", 1, at=1)
    lab.apply(WorkloadSeen(msgspec.structs.replace(old, evicted=True)))
    lab.waits("high", "q", 1, priority=1)

    assert lab.decide() == ()
    assert lab.why("high") == "1 of 1 preempted workloads have not left yet"


def test_a_victim_that_queues_again_waits_in_its_old_place():
    lab = Lab("q 2 within=lower")
    lab.runs("low", "q", 2)
    lab.waits("high", "q", 2, priority=1)
    lab.waits("other", "q", 2)
    lab.decide()
    lab.records["low"] = msgspec.structs.replace(lab.records["low"], admission=None)
    lab.apply(WorkloadSeen(lab.records["low"]))

    assert lab.admitted() == ["high"]

    lab.gone("high")

    assert lab.admitted() == ["low"]


def test_a_running_workload_that_becomes_less_important_may_be_taken():
    lab = Lab("q 2 within=lower")
    lab.runs("r", "q", 2, priority=5)
    lab.waits("w", "q", 2, priority=1)

    assert lab.decide() == ()

    lab.records["r"] = msgspec.structs.replace(lab.records["r"], priority=0)
    lab.apply(WorkloadSeen(lab.records["r"]))

    assert lab.victims() == {"r": "InClusterQueue"}
