"""Loads for the engine's bench: trees of many queues, workloads of one shape or many, and a stopwatch around both.

The stopwatch counts CPU time of this process: the engine never waits, so on an idle core that is the time it takes, and
other processes of the machine do not count.
"""

import time
from collections.abc import Iterable

import msgspec

from extender.engine.engine import Engine
from extender.model.effects import Admit, EngineEffect
from extender.model.events import (
    ClusterQueueSeen,
    CohortSeen,
    EngineEvent,
    FlavorSeen,
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
    Cohort,
    FlavorQuotas,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from extender.model.workload import PodSet, Workload

NAMESPACE = Namespace("bench")
FLAVOR = FlavorName("default")
_SETS: dict[int, tuple[PodSet, ...]] = {}


def workload(number: int, *, queue: int, cpu: int, priority: int = 0, created_ms: int | None = None) -> Workload:
    """A workload of *cpu* cores."""
    pod_sets = _SETS.get(cpu)
    if pod_sets is None:
        pod_sets = _SETS[cpu] = (PodSet("main", 1, ((CPU, cpu * 1000),)),)
    return Workload(
        uid=WorkloadUid(f"w{number:07}"),
        name=f"bench/w{number}",
        queue=LocalQueueKey(NAMESPACE, LocalQueueName(f"q{queue}")),
        created_ms=number if created_ms is None else created_ms,
        pod_sets=pod_sets,
        priority=priority,
    )


def groups(nominal: int, *, borrows: int | None = None) -> tuple[ResourceGroup, ...]:
    """*nominal* cores of the one flavor."""
    quota = Quota(nominal * 1000, None if borrows is None else borrows * 1000)
    return (ResourceGroup((CPU,), (FlavorQuotas(FLAVOR, ((CPU, quota),)),)),)


class Lab:
    """An engine under load. Every method that gives it work answers how many seconds that took."""

    def __init__(self, policy: Policy) -> None:
        self.engine = Engine(policy)
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.queues: dict[int, ClusterQueue] = {}
        self.now_ms = 0
        self.apply([FlavorSeen(ResourceFlavor(FLAVOR)), NamespaceSeen(NAMESPACE, ())])

    def apply(self, events: Iterable[EngineEvent]) -> float:
        """Tell it facts."""
        apply, facts = self.engine.apply, list(events)
        started = time.process_time()
        for fact in facts:
            apply(fact)
        return time.process_time() - started

    def tell(self, workloads: Iterable[Workload]) -> float:
        """New workloads, or known ones as they are now."""
        told = list(workloads)
        self.workloads.update((workload.uid, workload) for workload in told)
        return self.apply(WorkloadSeen(workload) for workload in told)

    def run_pass(self) -> tuple[float, tuple[EngineEffect, ...]]:
        """Decide; the effects beside the seconds."""
        self.now_ms += 1
        started = time.process_time()
        effects = self.engine.run_pass(self.now_ms).effects
        return time.process_time() - started, effects

    def confirm(self, effects: Iterable[EngineEffect]) -> float:
        """The watch shows the admissions."""
        admits = [effect for effect in effects if isinstance(effect, Admit)]
        return self.tell(
            msgspec.structs.replace(self.workloads[admit.uid], admission=admit.admission) for admit in admits
        )

    def gone(self, uid: WorkloadUid) -> float:
        """A workload ends."""
        self.workloads.pop(uid, None)
        return self.apply([WorkloadGone(uid)])

    def add_queue(
        self,
        number: int,
        *,
        cohort: str | None,
        nominal: int,
        borrows: int | None = None,
        preemption: Preemption = Preemption(),  # noqa: B008 - frozen
    ) -> None:
        """A ClusterQueue and its LocalQueue."""
        name = ClusterQueueName(f"cq{number}")
        queue = ClusterQueue(
            name,
            cohort=None if cohort is None else CohortName(cohort),
            resource_groups=groups(nominal, borrows=borrows),
            namespace_selector=Selector(),
            preemption=preemption,
        )
        self.queues[number] = queue
        local = LocalQueue(NAMESPACE, LocalQueueName(f"q{number}"), name)
        self.apply([ClusterQueueSeen(queue), LocalQueueSeen(local)])

    def set_nominal(self, number: int, nominal: int) -> None:
        """An administrator changes a quota."""
        queue = msgspec.structs.replace(self.queues[number], resource_groups=groups(nominal))
        self.queues[number] = queue
        self.apply([ClusterQueueSeen(queue)])

    def flat_cohorts(
        self,
        queues: int,
        *,
        per_cohort: int,
        nominal: int,
        within: PreemptionPolicy = PreemptionPolicy.NEVER,
    ) -> None:
        """Queues of *nominal* cores each, *per_cohort* of them in a cohort."""
        preemption = Preemption(within_cluster_queue=within)
        for n in range(queues):
            self.add_queue(n, cohort=f"cohort{n // per_cohort}", nominal=nominal, preemption=preemption)
        self.run_pass()

    def three_levels(self, *, nodes: int, borrowers: int) -> None:
        """A root, 40 cohorts, and queues below them; queue 0 owns what *borrowers* others use, one core each."""
        cohorts = 40
        reclaim = Preemption(
            within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
        )
        self.apply([CohortSeen(Cohort(CohortName("root")))])
        self.apply([CohortSeen(Cohort(CohortName(f"c{n}"), parent=CohortName("root"))) for n in range(cohorts)])
        for n in range(nodes - cohorts - 1):
            self.add_queue(n, cohort=f"c{n % cohorts}", nominal=borrowers if n == 0 else 0, preemption=reclaim)
        self.tell([workload(n, queue=1 + n, cpu=1) for n in range(borrowers)])
        _, effects = self.run_pass()
        assert len(effects) == borrowers, f"{len(effects)} of {borrowers} borrow"
        self.confirm(effects)
        self.run_pass()
