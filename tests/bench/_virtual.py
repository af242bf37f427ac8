"""The reference's scalability generators in virtual time: arrivals, run times and evictions, decisions taking none.

The numbers are those that the reference publishes for its baseline and large-scale tests. Each workload set of each
queue creates one workload every so often from time 0 on. An evicted workload stops at once and starts anew later.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from extender.model.effects import Admit, Evict
from extender.model.names import WorkloadUid
from extender.model.policy import Policy
from extender.model.quota import Preemption, PreemptionPolicy
from extender.model.workload import Workload
from tests.bench._load import Lab, workload

NOMINAL = 20
BORROWS = 100


class Kind(NamedTuple):
    """Workloads of one kind in one queue; *cpu* in cores."""

    name: str
    count: int
    cpu: int
    priority: int
    run_ms: int
    every_ms: int


class Generator(NamedTuple):
    """Cohorts of like queues."""

    cohorts: int
    queues: int
    kinds: tuple[Kind, ...]


BASELINE = Generator(
    5,
    6,
    (
        Kind("small", 350, 1, 50, 200, 100),
        Kind("medium", 100, 5, 100, 500, 500),
        Kind("large", 50, 20, 200, 1_000, 1_200),
    ),
)
LARGE_SCALE = Generator(
    10,
    100,
    (Kind("small", 35, 1, 50, 150, 60), Kind("medium", 11, 5, 100, 350, 300), Kind("large", 4, 20, 200, 700, 700)),
)


class Outcome(NamedTuple):
    """How a replay went. ``used``: the work by the quota and the virtual time; ``wasted``: work lost by eviction.

    ``wait_s``: mean time from creation to first admission, by kind.
    """

    workloads: int
    virtual_s: float
    used: float
    wasted: float
    engine_s: float
    passes: int
    evictions: int
    wait_s: dict[str, float]


class _Run:
    def __init__(self, generator: Generator, policy: Policy) -> None:
        self.lab = Lab(policy)
        self.generator = generator
        self.kind_of: dict[WorkloadUid, Kind] = {}
        self.started_ms: dict[WorkloadUid, int] = {}
        self.first_ms: dict[WorkloadUid, int] = {}
        self.ends: list[tuple[int, WorkloadUid, int]] = []
        self.engine_s = 0.0
        self.passes = self.evictions = self.wasted = 0
        preemption = Preemption(
            within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
        )
        for n in range(generator.cohorts * generator.queues):
            cohort = f"cohort{n // generator.queues}"
            self.lab.add_queue(n, cohort=cohort, nominal=NOMINAL, borrows=BORROWS, preemption=preemption)

    def arrivals(self) -> Iterator[tuple[int, Workload]]:
        """Every workload with its time, in the order of time."""
        made = []
        for kind in self.generator.kinds:
            for n in range(kind.count):
                made += [(n * kind.every_ms, queue, kind) for queue in range(len(self.lab.queues))]
        made.sort(key=lambda one: (one[0], one[1], one[2].name))
        for number, (at_ms, queue, kind) in enumerate(made):
            created = workload(number, queue=queue, cpu=kind.cpu, priority=kind.priority, created_ms=at_ms)
            self.kind_of[created.uid] = kind
            yield at_ms, created

    def run(self) -> Outcome:
        arrivals = list(self.arrivals())
        at = now_ms = 0
        while at < len(arrivals) or self.ends:
            next_arrival = arrivals[at][0] if at < len(arrivals) else None
            now_ms = min(t for t in (next_arrival, self.ends[0][0] if self.ends else None) if t is not None)
            while self.ends and self.ends[0][0] == now_ms:
                _, uid, since_ms = heapq.heappop(self.ends)
                if self.started_ms.get(uid) == since_ms:
                    del self.started_ms[uid]
                    self.engine_s += self.lab.gone(uid)
            fresh = []
            while at < len(arrivals) and arrivals[at][0] == now_ms:
                fresh.append(arrivals[at][1])
                at += 1
            self.engine_s += self.lab.tell(fresh)
            self._decide(now_ms)
        assert not self.lab.workloads, f"{len(self.lab.workloads)} workloads never ran"
        return self._outcome(now_ms)

    def _decide(self, now_ms: int) -> None:
        while self.lab.engine.has_work:
            self.lab.now_ms = now_ms
            seconds, effects = self.lab.run_pass()
            self.engine_s += seconds
            self.passes += 1
            self.engine_s += self.lab.confirm(effects)
            evicted = []
            for effect in effects:
                match effect:
                    case Admit(uid):
                        self.started_ms[uid] = now_ms
                        self.first_ms.setdefault(uid, now_ms)
                        heapq.heappush(self.ends, (now_ms + self.kind_of[uid].run_ms, uid, now_ms))
                    case Evict(uid):
                        evicted.append(msgspec.structs.replace(self.lab.workloads[uid], admission=None))
                        self.evictions += 1
                        self.wasted += (now_ms - self.started_ms.pop(uid)) * self.kind_of[uid].cpu
            self.engine_s += self.lab.tell(evicted)

    def _outcome(self, now_ms: int) -> Outcome:
        whole = NOMINAL * len(self.lab.queues) * now_ms
        work = sum(kind.cpu * kind.run_ms for kind in self.kind_of.values())
        waits: dict[str, list[int]] = {kind.name: [] for kind in self.generator.kinds}
        created = {created.uid: at_ms for at_ms, created in self.arrivals()}
        for uid, kind in self.kind_of.items():
            waits[kind.name].append(self.first_ms[uid] - created[uid])
        return Outcome(
            workloads=len(self.kind_of),
            virtual_s=now_ms / 1000,
            used=work / whole,
            wasted=self.wasted / whole,
            engine_s=self.engine_s,
            passes=self.passes,
            evictions=self.evictions,
            wait_s={name: sum(values) / len(values) / 1000 for name, values in waits.items()},
        )


def replay(generator: Generator, policy: Policy) -> Outcome:
    """Live through the arrivals of *generator* under *policy* until everything has run."""
    return _Run(generator, policy).run()
