"""Lives with an engine as the shells do: carries out what it decides and shows it the result."""

from collections.abc import Iterable

import msgspec

from extender.engine.engine import Engine
from extender.model.effects import Admit, EngineEffect, Evict
from extender.model.events import EngineEvent, WorkloadGone, WorkloadSeen
from extender.model.names import ClusterQueueName, WorkloadUid
from extender.model.policy import Policy
from extender.model.workload import Admission, Workload
from tests.laws.build import World
from tests.sim.plain import PlainQuota, queue_usage, sum_by_queue

PASSES_MAX = 300


class Lab:
    """An engine, the facts it was told, and the workloads as the world shows them.

    ``leaving`` are victims that have not gone yet, with their preemptor.
    """

    def __init__(self, world: World, policy: Policy) -> None:
        self.world = world
        self.engine = Engine(policy)
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.leaving: dict[WorkloadUid, WorkloadUid | None] = {}
        self.evictions: list[tuple[WorkloadUid, WorkloadUid | None]] = []
        self.taken_back: set[WorkloadUid] = set()
        self.now_ms = 10_000
        self.apply(world.facts())

    def apply(self, events: Iterable[EngineEvent]) -> None:
        """Tell it facts."""
        for event in events:
            self.engine.apply(event)

    def see(self, workload: Workload) -> None:
        """The world shows *workload*."""
        self.workloads[workload.uid] = workload
        self.apply([WorkloadSeen(workload)])

    def gone(self, uid: WorkloadUid) -> Workload:
        """A workload ends, or has been deleted."""
        self.leaving.pop(uid, None)
        workload = self.workloads.pop(uid)
        self.apply([WorkloadGone(uid)])
        return workload

    def decide(self, *, confirm: bool = True) -> tuple[EngineEffect, ...]:
        """Run a pass; its admissions are written and seen unless *confirm* is false."""
        self.now_ms += 1_000
        result = self.engine.run_pass(self.now_ms)
        effects = result.effects
        self.taken_back.update(result.taken_back)
        for effect in effects:
            match effect:
                case Admit(uid, admission):
                    if confirm:
                        self.see(msgspec.structs.replace(self.workloads[uid], admission=admission))
                case Evict(uid, preemptor):
                    self.leaving[uid] = preemptor
                    self.evictions.append((uid, preemptor))
        return effects

    def until_quiet(self) -> None:
        """Decide until nothing is decided, while victims stay."""
        for _ in range(PASSES_MAX):
            if not self.decide() and not self.engine.has_work:
                return
        raise AssertionError(f"still deciding after {PASSES_MAX} passes without a fact from outside")

    def running(self) -> dict[WorkloadUid, Admission]:
        """What the world shows as admitted."""
        return {uid: workload.admission for uid, workload in self.workloads.items() if workload.admission is not None}

    def plain(self, *, without: Iterable[WorkloadUid] = ()) -> PlainQuota:
        """The plain model of what runs, victims that have not left included."""
        out = set(without)
        return plain_quota(self.world, {uid: given for uid, given in self.running().items() if uid not in out})


def plain_quota(world: World, running: dict[WorkloadUid, Admission]) -> PlainQuota:
    """The plain model of a world with these admissions."""
    return PlainQuota(world.cohorts, world.queues, sum_by_queue(map(_held, running.values())))


def _held(admission: Admission) -> tuple[ClusterQueueName, dict]:
    flavored = [
        (resource, dict(given.flavors)[resource], amount)
        for given in admission.assignments
        for resource, amount in given.usage
    ]
    return admission.cluster_queue, queue_usage(flavored)
