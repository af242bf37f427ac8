"""Facts in any order, and a workload's life: waiting, assumed, confirmed, evicted, gone."""

import itertools

import msgspec
import pytest

from extender.model.effects import Admit, Evict, EvictionReason
from extender.model.events import (
    AdmissionRefused,
    ClusterQueueGone,
    ClusterQueueSeen,
    CohortGone,
    CohortSeen,
    EvictionRefused,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceGone,
    NamespaceSeen,
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
from extender.model.quota import Cohort, LocalQueue, ResourceFlavor, Selector, StopPolicy
from extender.model.reasons import ReasonCode, reason
from tests.engine.drawing import FAIR, REFERENCE, TEAM, Lab, admission, quota_facts, workload

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


# -- queues ----------------------------------------------------------------------------------------------------


def test_a_stopped_queue_admits_nothing_and_says_so():
    lab = Lab(ONE)
    change(lab, stop_policy=StopPolicy.HOLD)
    lab.waits("w", "q", 1)

    assert lab.decide() == ()
    assert lab.why("w") == "ClusterQueue q is on Hold"
    assert lab.engine.view(Q).reason.sentence() == "ClusterQueue q is on Hold"

    change(lab, stop_policy=StopPolicy.NONE)

    assert lab.admitted() == ["w"]


def test_a_drained_queue_evicts_each_once():
    lab = Lab(ONE)
    lab.runs("b", "q", 1)
    lab.runs("a", "q", 1)
    change(lab, stop_policy=StopPolicy.HOLD_AND_DRAIN)
    effects = lab.decide()

    assert [effect.uid for effect in effects] == ["a", "b"]
    assert {effect.reason for effect in effects if isinstance(effect, Evict)} == {EvictionReason.CLUSTER_QUEUE_STOPPED}
    assert lab.decide() == ()

    lab.apply(EvictionRefused(WorkloadUid("a"), "a budget"))

    assert [effect.uid for effect in lab.decide()] == ["a"]


def test_what_is_admitted_late_into_a_drained_queue_is_evicted_too():
    lab = Lab(ONE)
    change(lab, stop_policy=StopPolicy.HOLD_AND_DRAIN)
    lab.runs("w", "q", 1)

    assert lab.victims() == {"w": "ClusterQueueStopped"}


def test_a_drain_that_was_called_off_evicts_nobody():
    lab = Lab(ONE)
    lab.runs("w", "q", 1)
    change(lab, stop_policy=StopPolicy.HOLD_AND_DRAIN)
    change(lab, stop_policy=StopPolicy.NONE)

    assert lab.engine.has_work
    assert lab.decide() == ()


def stop_local(lab: Lab, policy: StopPolicy) -> None:
    lab.apply(LocalQueueSeen(LocalQueue(TEAM, LocalQueueName("q"), Q, stop_policy=policy)))


def test_a_stopped_local_queue():
    lab = Lab(ONE)
    lab.runs("r", "q", 1)
    lab.waits("w", "q", 1)
    stop_local(lab, StopPolicy.HOLD)

    assert lab.decide() == ()
    assert lab.why("w") == "LocalQueue team/q is on Hold"

    stop_local(lab, StopPolicy.HOLD_AND_DRAIN)

    assert lab.victims() == {"r": "LocalQueueStopped"}

    stop_local(lab, StopPolicy.NONE)

    assert lab.admitted() == ["w"]


def test_a_local_queue_that_is_missing_or_goes():
    lab = Lab(ONE)
    lab.waits("w", "x", 1)

    assert lab.why("w") == "no LocalQueue x in namespace team"

    lab.apply(LocalQueueSeen(LocalQueue(TEAM, LocalQueueName("x"), ClusterQueueName("q"))))
    lab.decide()

    assert lab.engine.is_charged(W)

    lab.waits("v", "x", 9)
    lab.apply(LocalQueueGone(LocalQueueKey(TEAM, LocalQueueName("x"))))
    lab.decide()

    assert lab.code("v") == "QueueNotFound"


def test_a_local_queue_may_be_pointed_elsewhere():
    lab = Lab("q 0\np 4")
    lab.waits("w", "q", 1)
    lab.decide()
    lab.apply(LocalQueueSeen(LocalQueue(TEAM, LocalQueueName("q"), ClusterQueueName("p"))))

    assert lab.admitted() == ["w"]
    assert lab.engine.admission_of(W).cluster_queue == "p"


def test_a_local_queue_before_its_cluster_queue():
    lab = Lab()
    lab.apply(LocalQueueSeen(LocalQueue(TEAM, LocalQueueName("q"), Q)))
    lab.waits("w", "q", 1)

    assert lab.decide() == ()
    assert lab.why("w") == "ClusterQueue q is inactive: it does not exist"

    lab.draw(ONE)

    assert lab.admitted() == ["w"]

    lab.apply(LocalQueueGone(KEY), ClusterQueueGone(Q))

    assert lab.engine.cluster_queue_names() == ["q"]

    lab.gone("w")
    lab.decide()

    assert lab.engine.cluster_queue_names() == []


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"deleting": True}, "it is being deleted"),
        ({"misconfigured": "flavor f is listed twice"}, "flavor f is listed twice"),
        ({"admission_checks": ("a", "b")}, "AdmissionCheckNotFound a, b"),
    ],
)
def test_an_inactive_queue_says_why_and_keeps_what_runs(fields, want):
    lab = Lab("K\n  q 2\n  p 2")
    lab.runs("r", "q", 1)
    change(lab, **fields)
    lab.waits("w", "q", 1)
    lab.waits("other", "p", 3)

    assert lab.admitted() == ["other"]
    assert lab.why("w") == f"ClusterQueue q is inactive: {want}"
    assert not lab.engine.view(Q).active
    assert lab.engine.view(Q).reserving == 1


def test_a_missing_flavor_stops_the_whole_queue():
    lab = Lab("q red/gpu=1 blue/gpu=1")
    lab.apply(FlavorGone(FlavorName("red")))
    lab.waits("w", "q", 1)

    assert lab.decide() == ()
    assert lab.why("w") == "ClusterQueue q is inactive: FlavorNotFound red"

    lab.apply(FlavorSeen(ResourceFlavor(FlavorName("red"), topology="racks")))

    assert lab.admitted() == ["w"]


def test_a_queue_that_no_longer_lists_a_flavor_does_not_hear_of_it():
    lab = Lab("q red/gpu=1")
    lab.draw("q blue/gpu=1")
    lab.decide()
    lab.apply(FlavorGone(FlavorName("red")))

    assert not lab.engine.has_work


def test_namespaces_are_selected_by_label():
    lab = Lab(ONE)
    change(lab, namespace_selector=Selector(labels=(("kind", "lab"),)))
    lab.waits("w", "q", 1)

    assert lab.decide() == ()
    assert lab.why("w") == "namespace team is not selected by ClusterQueue q"

    lab.apply(NamespaceSeen(TEAM, (("kind", "lab"),)), NamespaceSeen(Namespace("other"), ()))

    assert lab.admitted() == ["w"]

    lab.waits("v", "q", 1)
    lab.apply(NamespaceGone(TEAM))

    assert lab.decide() == ()
    assert lab.code("v") == "NamespaceNotAllowed"


def test_a_namespace_is_selected_by_its_own_name_and_no_selector_selects_none():
    lab = Lab(ONE)
    change(lab, namespace_selector=Selector(labels=(("kubernetes.io/metadata.name", "team"),)))
    lab.waits("w", "q", 1)

    assert lab.admitted() == ["w"]

    change(lab, namespace_selector=None)
    lab.waits("v", "q", 1)

    assert lab.decide() == ()


def test_usage_of_a_deleted_queue_stays_on_its_books():
    lab = Lab("K\n  q 2\n  p 2")
    lab.runs("w", "q", 2)
    lab.decide()
    lab.apply(ClusterQueueGone(Q))
    lab.waits("v", "p", 2)

    assert lab.admitted() == ["v"]
    assert [(row.used, row.nominal) for row in lab.engine.view(Q).usage] == [(2, 0)]
    assert lab.engine.view(Q).reason.code == ReasonCode.QUEUE_INACTIVE

    lab.gone("w")
    lab.apply(LocalQueueGone(KEY))
    lab.decide()

    assert lab.engine.cluster_queue_names() == ["p"]


def test_usage_of_a_flavor_that_nobody_lists_any_more_still_counts():
    lab = Lab("K\n  q red/gpu=2\n  p red/gpu=2")
    lab.runs("w", "q", 3, flavor="red")
    lab.decide()
    lab.draw("K\n  q blue/gpu=2")
    lab.waits("v", "p", 2)
    lab.decide()

    assert lab.code("v") == "CohortExhausted"
    assert {row.flavor: row.used for row in lab.engine.view(Q).usage} == {"blue": 0, "red": 3}

    lab.gone("w")

    assert lab.admitted() == ["v"]


def test_an_admission_to_a_queue_that_nobody_knows_is_kept():
    lab = Lab(ONE)
    made = workload("w", "q", 2)
    lab.apply(WorkloadSeen(msgspec.structs.replace(made, admission=admission(made, "lost", "f", 1))))
    lab.decide()

    assert lab.engine.view(ClusterQueueName("lost")).usage[0].used == 2

    lab.gone("w")
    lab.decide()

    assert lab.engine.cluster_queue_names() == ["q"]


# -- cohorts ---------------------------------------------------------------------------------------------------


def test_an_implicit_cohort_lives_as_long_as_something_names_it():
    lab = Lab("K 5\n  q 1")
    lab.apply(CohortGone(CohortName("K")))
    lab.decide()

    assert lab.engine.cohort_names() == ["K"]
    assert not lab.engine.cohort_view(CohortName("K")).explicit

    change(lab, cohort=None)
    lab.decide()

    assert lab.engine.cohort_names() == []


def test_a_chain_of_implicit_cohorts_goes_together():
    lab = Lab()
    lab.apply(CohortSeen(Cohort(CohortName("low"), parent=CohortName("high"))))

    assert lab.engine.cohort_names() == ["high", "low"]

    lab.apply(CohortGone(CohortName("low")))

    assert lab.engine.cohort_names() == []


def test_a_cohort_that_moves_takes_its_quota_along():
    lab = Lab("A 0\n  x 0\nB 0\n  M 3\n    y 0")
    lab.waits("w", "x", 2)
    lab.decide()
    lab.apply(CohortSeen(Cohort(CohortName("M"), parent=CohortName("A"))))

    assert lab.admitted() == []

    lab.draw("A 0\n  x 0\n  M 3\n    y 0")

    assert lab.admitted() == ["w"]


@pytest.mark.parametrize("policy", [REFERENCE, FAIR])
def test_a_cycle_of_cohorts_decides_nothing_and_ends_when_it_is_broken(policy):
    lab = Lab("A cohort\n  q 2\n  B cohort\n    p 2", policy)
    lab.runs("r", "q", 3)
    lab.waits("w", "p", 1)
    lab.apply(CohortSeen(Cohort(CohortName("A"), parent=CohortName("B"))))

    assert lab.decide() == ()
    assert lab.why("w") == "ClusterQueue p is inactive: CohortCycle above cohort B"
    assert lab.engine.view(Q).usage[0].used == 3
    assert lab.engine.cohort_view(CohortName("A")).cyclic
    assert len(lab.engine.tree()) == 1

    lab.gone("r")
    lab.apply(CohortSeen(Cohort(CohortName("A"))))

    assert lab.admitted() == ["w"]


def test_a_cohort_may_be_its_own_parent():
    lab = Lab("A cohort\n  q 2")
    lab.apply(CohortSeen(Cohort(CohortName("A"), parent=CohortName("A"))))
    lab.waits("w", "q", 1)

    assert lab.decide() == ()
    assert lab.code("w") == "QueueInactive"


def test_new_quota_wakes_the_tree():
    lab = Lab("K 0\n  q 1")
    lab.waits("w", "q", 2)
    lab.decide()
    lab.draw("K 1\n  q 1")

    assert lab.admitted() == ["w"]
