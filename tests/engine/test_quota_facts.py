"""Facts about queues, flavors, namespaces and cohorts, and what they do to those who wait and run."""

import msgspec
import pytest

from extender.model.effects import Evict, EvictionReason
from extender.model.events import (
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
from extender.model.reasons import ReasonCode
from tests.engine.drawing import FAIR, REFERENCE, TEAM, Lab, admission, workload

ONE = "q 2"
Q = ClusterQueueName("q")
W = WorkloadUid("w")
KEY = LocalQueueKey(TEAM, LocalQueueName("q"))


def spec(lab: Lab, name: str = "q"):
    return lab.engine._world.states[ClusterQueueName(name)].leaf.spec


def change(lab: Lab, name: str = "q", **fields) -> None:
    """Edit a cluster queue."""
    lab.apply(ClusterQueueSeen(msgspec.structs.replace(spec(lab, name), **fields)))


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
        (
            {"admission_checks": ("a", "b")},
            (
                "AdmissionCheckNotFound a, b: admission checks are not supported; "
                "remove spec.admissionChecksStrategy or spec.admissionChecks"
            ),
        ),
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
    want = "FlavorNotFound red: create the ResourceFlavor, or take it out of the ClusterQueue"
    assert lab.why("w") == f"ClusterQueue q is inactive: {want}"

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
    want = "CohortCycle above cohort B: its parents run in a circle; change the parent of one of them"
    assert lab.why("w") == f"ClusterQueue p is inactive: {want}"
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
