"""The smallest scenarios of what laws and simulated stories have found in the engine."""

import msgspec
import pytest

from extender.engine.engine import Engine
from extender.model.amounts import UNLIMITED
from extender.model.effects import Admit, Evict
from extender.model.events import (
    ClusterQueueSeen,
    EvictionRefused,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceSeen,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import (
    CPU,
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    WorkloadUid,
)
from extender.model.policy import Policy
from extender.model.quota import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from extender.model.reasons import ReasonCode
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload

NAMESPACE = Namespace("found")
QUEUE = ClusterQueueName("queue")
CYCLES_ENOUGH = 20


def queue(
    *flavors: str, nominal: int = 2, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
) -> ClusterQueue:
    """A queue on its own that lets higher priorities preempt."""
    quotas = tuple(FlavorQuotas(FlavorName(flavor), ((CPU, Quota(nominal)),)) for flavor in flavors)
    return ClusterQueue(
        QUEUE,
        resource_groups=(ResourceGroup((CPU,), quotas),),
        strategy=strategy,
        namespace_selector=Selector(),
        preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY),
    )


def engine(spec: ClusterQueue) -> Engine:
    """An engine with that queue and two flavors."""
    made = Engine(Policy())
    made.apply(NamespaceSeen(NAMESPACE, ()))
    for flavor in ("a", "b"):
        made.apply(FlavorSeen(ResourceFlavor(FlavorName(flavor))))
    made.apply(ClusterQueueSeen(spec))
    made.apply(LocalQueueSeen(LocalQueue(NAMESPACE, LocalQueueName("queue"), QUEUE)))
    return made


def workload(uid: str, cpu: int, *, priority: int = 0) -> Workload:
    """A workload that waits."""
    return Workload(
        uid=WorkloadUid(uid),
        name=uid,
        queue=LocalQueueKey(NAMESPACE, LocalQueueName("queue")),
        created_ms=1_000,
        pod_sets=(PodSet("main", 1, ((CPU, cpu),)),),
        priority=priority,
    )


@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_a_pass_ends_when_one_of_two_evictions_was_refused(strategy: QueueingStrategy) -> None:
    found = engine(queue("a", strategy=strategy))
    small = [workload("a", 1), workload("b", 1)]
    for one in small:
        found.apply(WorkloadSeen(one))
    for one, effect in zip(small, found.run_pass(10).effects, strict=True):
        assert isinstance(effect, Admit)
        found.apply(WorkloadSeen(msgspec.structs.replace(one, admission=effect.admission)))
    found.apply(WorkloadSeen(workload("p", 2, priority=5)))
    first = found.run_pass(20)
    found.apply(EvictionRefused(WorkloadUid("a"), "a disruption budget"))
    again = found.run_pass(30)

    assert [effect.uid for effect in first.effects if isinstance(effect, Evict)] == ["a", "b"]
    assert [effect.uid for effect in again.effects if isinstance(effect, Evict)] == ["a"]
    assert again.cycles <= CYCLES_ENOUGH
    assert not found.has_work


def test_a_flavor_that_is_held_with_amount_zero_may_leave_the_queue() -> None:
    found = engine(queue("a"))
    given = Admission(QUEUE, (PodSetAssignment("main", ((CPU, FlavorName("a")),), ((CPU, 0),), 1),), 5)
    found.apply(WorkloadSeen(msgspec.structs.replace(workload("w", 0), admission=given)))
    found.run_pass(10)
    found.apply(ClusterQueueSeen(queue("b")))
    found.run_pass(20)

    assert list(found.check()) == []
    assert found.fork().digest() == found.digest()


def test_a_local_queue_of_a_cluster_queue_that_never_was_may_go_while_somebody_waits_in_it() -> None:
    found = Engine(Policy())
    found.apply(NamespaceSeen(NAMESPACE, ()))
    found.apply(LocalQueueSeen(LocalQueue(NAMESPACE, LocalQueueName("queue"), ClusterQueueName("mistyped"))))
    found.apply(WorkloadSeen(workload("w", 1)))
    found.run_pass(10)
    found.apply(LocalQueueGone(LocalQueueKey(NAMESPACE, LocalQueueName("queue"))))
    found.run_pass(20)
    why = found.reason_of(WorkloadUid("w"))

    assert why is not None
    assert why.code is ReasonCode.QUEUE_NOT_FOUND
    assert found.cluster_queue_names() == []
    assert list(found.check()) == []


def test_nothing_is_left_of_a_cluster_queue_that_never_was_once_no_local_queue_names_it() -> None:
    found = engine(queue("a"))
    for name in ("mistyped", str(QUEUE)):
        found.apply(LocalQueueSeen(LocalQueue(NAMESPACE, LocalQueueName("other"), ClusterQueueName(name))))

    assert found.cluster_queue_names() == [QUEUE]


def test_what_exceeds_an_endless_quota_that_is_not_lent_is_no_loss_to_the_cohort() -> None:
    cohort = CohortName("cohort")
    endless = FlavorQuotas(FlavorName("a"), ((CPU, Quota(UNLIMITED, lending_limit=0)),))
    found = engine(
        msgspec.structs.replace(queue("a"), cohort=cohort, resource_groups=(ResourceGroup((CPU,), (endless,)),))
    )
    found.apply(ClusterQueueSeen(msgspec.structs.replace(queue("a"), name=ClusterQueueName("other"), cohort=cohort)))
    for name in ("w1", "w2"):
        found.apply(WorkloadSeen(workload(name, UNLIMITED - 1)))
    admitted = [effect.uid for effect in found.run_pass(10).effects if isinstance(effect, Admit)]
    (used,) = found.cohort_view(cohort).usage

    assert admitted == ["w1", "w2"]
    assert (used.used, used.subtree) == (0, 2)
    assert list(found.check()) == []

    found.apply(WorkloadGone(WorkloadUid("w1")))

    assert list(found.check()) == []
