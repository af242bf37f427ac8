"""Random worlds for the laws: trees of up to four levels, quotas with limits, and what is asked of them.

A world is plain data, so that hypothesis can shrink it and a failure prints what to build.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from extender.model.events import (
    ClusterQueueSeen,
    CohortSeen,
    EngineEvent,
    FlavorSeen,
    LocalQueueSeen,
    NamespaceSeen,
)
from extender.model.names import (
    CPU,
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    ResourceName,
    WorkloadUid,
)
from extender.model.policy import DEFAULT_STRATEGIES, FairSharingStrategy, Policy
from extender.model.quota import (
    ClusterQueue,
    Cohort,
    FairWeight,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Preference,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from extender.model.workload import PodSet, Workload

GPU = ResourceName("nvidia.com/gpu")
NAMESPACE = Namespace("laws")
FLAVORS = (FlavorName("a"), FlavorName("b"))
WEIGHTS = (0.0, 0.5, 1.0, 300.0, 1e7)
LEVELS_MAX = 4
EXAMPLES = os.environ.get("LAWS")
LAW = settings(
    deadline=None,
    derandomize=EXAMPLES is None,
    max_examples=int(EXAMPLES or 60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same 60 examples in every run; ``LAWS=5000 pytest tests/laws`` looks for new ones."""


class World(NamedTuple):
    """Quota objects and nothing else."""

    cohorts: tuple[Cohort, ...]
    queues: tuple[ClusterQueue, ...]

    def facts(self) -> list[EngineEvent]:
        """The facts that build it."""
        local_queues = [LocalQueue(NAMESPACE, LocalQueueName(queue.name), queue.name) for queue in self.queues]
        return [
            NamespaceSeen(NAMESPACE, ()),
            *(FlavorSeen(ResourceFlavor(name)) for name in FLAVORS),
            *(CohortSeen(cohort) for cohort in self.cohorts),
            *(ClusterQueueSeen(queue) for queue in self.queues),
            *(LocalQueueSeen(local_queue) for local_queue in local_queues),
        ]


class Asked(NamedTuple):
    """A workload in short."""

    queue: int
    cpu: int
    gpu: int
    priority: int
    created_s: int


amounts = st.integers(0, 8)
limits = st.none() | st.integers(0, 5)


@st.composite
def _groups(draw: st.DrawFn, *, limited: bool) -> tuple[ResourceGroup, ...]:
    """One group of one or two resources with one or two flavors."""
    covered = draw(st.sampled_from(((CPU,), (CPU,), (CPU, GPU))))
    names = draw(st.sampled_from((FLAVORS[:1], FLAVORS[:1], FLAVORS, FLAVORS[::-1])))
    flavors = []
    for name in names:
        quotas = []
        for resource in covered:
            nominal = draw(amounts)
            borrows = draw(limits) if limited else None
            lends = draw(st.none() | st.integers(0, nominal)) if limited else None
            quotas.append((resource, Quota(nominal, borrows, lends)))
        flavors.append(FlavorQuotas(name, tuple(quotas)))
    return (ResourceGroup(covered, tuple(flavors)),)


@st.composite
def _cohort(draw: st.DrawFn, name: CohortName, parent: CohortName | None) -> Cohort:
    groups = draw(st.just(()) | _groups(limited=parent is not None))
    return Cohort(name, parent=parent, resource_groups=groups, weight=FairWeight(draw(st.sampled_from(WEIGHTS))))


@st.composite
def _queue(draw: st.DrawFn, name: ClusterQueueName, cohort: CohortName | None) -> ClusterQueue:
    reclaim = draw(st.sampled_from((PreemptionPolicy.ANY, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.NEVER)))
    borrows = reclaim != PreemptionPolicy.NEVER and draw(st.booleans())
    return ClusterQueue(
        name,
        cohort=cohort,
        resource_groups=draw(_groups(limited=cohort is not None)),
        strategy=draw(st.sampled_from((QueueingStrategy.BEST_EFFORT_FIFO, QueueingStrategy.STRICT_FIFO))),
        namespace_selector=Selector(),
        fungibility=Fungibility(
            next_when_borrowing=draw(st.booleans()),
            next_when_preempting=draw(st.booleans()),
            preference=draw(st.sampled_from(tuple(Preference))),
        ),
        preemption=Preemption(
            within_cluster_queue=draw(
                st.sampled_from(
                    (
                        PreemptionPolicy.LOWER_PRIORITY,
                        PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
                        PreemptionPolicy.NEVER,
                    )
                )
            ),
            reclaim_within_cohort=reclaim,
            borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY if borrows else PreemptionPolicy.NEVER,
            priority_threshold_max=draw(st.none() | st.integers(0, 2)) if borrows else None,
        ),
        weight=FairWeight(draw(st.sampled_from(WEIGHTS))),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to six cohorts in at most three levels, and one to four queues anywhere below them or on their own."""
    cohorts: list[Cohort] = []
    depth: dict[CohortName, int] = {}
    for n in range(draw(st.integers(0, 5))):
        name = CohortName(f"cohort{n}")
        above = [known for known, level in depth.items() if level < LEVELS_MAX - 1]
        parent = draw(st.sampled_from([*above, None])) if above else None
        depth[name] = 1 if parent is None else depth[parent] + 1
        cohorts.append(draw(_cohort(name, parent)))
    homes: list[CohortName | None] = [*depth, CohortName("implicit"), None]
    queues = [
        draw(_queue(ClusterQueueName(f"queue{n}"), draw(st.sampled_from(homes))))
        for n in range(draw(st.integers(1, 4)))
    ]
    return World(tuple(cohorts), tuple(queues))


asked = st.builds(
    Asked,
    queue=st.integers(0, 3),
    cpu=st.integers(1, 6),
    gpu=st.sampled_from((0, 0, 0, 1, 3)),
    priority=st.integers(0, 2),
    created_s=st.integers(0, 3),
)
"""A workload; its queue is taken modulo the number of queues."""

policies = st.sampled_from(
    (
        Policy(),
        Policy(fair_sharing=DEFAULT_STRATEGIES),
        Policy(fair_sharing=(FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)),
        Policy(fair_sharing=(FairSharingStrategy.LESS_THAN_INITIAL_SHARE,)),
    )
)
"""The shipped policies."""

all_policies = policies | st.sampled_from((Policy.reference(fair_sharing=False), Policy.reference(fair_sharing=True)))
"""The shipped policies, and those that agree with the reference scheduler."""


def workload(world: World, number: int, wanted: Asked) -> Workload:
    """The workload *wanted*, the *number*-th of its world."""
    queue = world.queues[wanted.queue % len(world.queues)]
    covered = {resource for group in queue.resource_groups for resource in group.covered}
    requests = [(CPU, wanted.cpu)]
    if wanted.gpu and GPU in covered:
        requests.append((GPU, wanted.gpu))
    return Workload(
        uid=WorkloadUid(f"w{number}"),
        name=f"laws/w{number}",
        queue=LocalQueueKey(NAMESPACE, LocalQueueName(queue.name)),
        created_ms=wanted.created_s * 1000,
        pod_sets=(PodSet("main", 1, tuple(requests)),),
        priority=wanted.priority,
    )


def workloads(world: World, wanted: list[Asked]) -> Iterator[Workload]:
    """All workloads of a list."""
    return (workload(world, number, one) for number, one in enumerate(wanted))
