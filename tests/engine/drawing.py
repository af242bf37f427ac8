"""Trees drawn as text: cohorts, the cluster queues below them, and a small world to live in them.

    R 4
      X 2 borrows=6 lends=7
        x1 8 lends=5
        x2 5 borrows=2
      Y 0 cohort

Indentation is the tree; a node with nothing below is a cluster queue unless it says ``cohort``. A bare number is its
nominal quota of the one resource ``gpu`` on the one flavor ``f``; ``red/cpu=4`` names another, with ``b`` and ``l`` for
its limits: ``red/cpu=4b2l1``. Resources with the same flavors form a group. Other words: ``weight``, ``within``,
``reclaim``, ``preempting_borrow`` (a threshold or ``any``), ``strict``, ``try_next_borrowing``, ``stop_at_preempting``,
``lower_level_first``.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from extender.engine.engine import Engine
from extender.engine.entry import CycleReport
from extender.engine.hierarchy import Cell, Leaf, Node
from extender.engine.world import World
from extender.model.effects import Admit, EngineEffect, Evict
from extender.model.events import (
    ClusterQueueSeen,
    CohortSeen,
    EngineEvent,
    FlavorSeen,
    LocalQueueSeen,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    ResourceName,
    WorkloadUid,
)
from extender.model.policy import DEFAULT_STRATEGIES, Policy
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
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload

GPU = ResourceName("gpu")
FLAVOR = FlavorName("f")
FR = FlavorResource(FLAVOR, GPU)
TEAM = Namespace("team")
POLICIES = {
    "never": PreemptionPolicy.NEVER,
    "lower": PreemptionPolicy.LOWER_PRIORITY,
    "newer": PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
    "any": PreemptionPolicy.ANY,
}
CLASSICAL = Policy()
FAIR = Policy(fair_sharing=DEFAULT_STRATEGIES)
REFERENCE = Policy.reference(fair_sharing=False)
REFERENCE_FAIR = Policy.reference(fair_sharing=True)
_AMOUNT = re.compile(r"(\d+)(?:b(\d+))?(?:l(\d+))?")


class _Line:
    """One node of a drawing."""

    def __init__(self, text: str) -> None:
        self.depth = len(text) - len(text.lstrip())
        self.name, *words = text.split()
        self.words = words
        self.parent: str | None = None
        self.inner = "cohort" in words

    def value(self, key: str, default: str = "") -> str:
        found = [word.split("=", 1)[1] for word in self.words if word.startswith(f"{key}=")]
        return found[0] if found else default

    def number(self, key: str) -> int | None:
        value = self.value(key)
        return int(value) if value else None

    def quotas(self) -> dict[FlavorResource, Quota]:
        found = {}
        for word in self.words:
            if word.isdigit():
                found[FR] = Quota(int(word), self.number("borrows"), self.number("lends"))
            elif "/" in word:
                key, _, amount = word.partition("=")
                flavor, _, resource = key.partition("/")
                match = _AMOUNT.fullmatch(amount)
                assert match is not None, word
                numbers = [None if one is None else int(one) for one in match.groups()]
                assert numbers[0] is not None
                found[FlavorResource(FlavorName(flavor), ResourceName(resource))] = Quota(numbers[0], *numbers[1:])
        return found

    def groups(self) -> tuple[ResourceGroup, ...]:
        quotas = self.quotas()
        flavors_of: dict[ResourceName, tuple[FlavorName, ...]] = {}
        for fr in quotas:
            flavors_of[fr.resource] = (*flavors_of.get(fr.resource, ()), fr.flavor)
        groups: dict[tuple[FlavorName, ...], list[ResourceName]] = {}
        for resource, flavors in flavors_of.items():
            groups.setdefault(flavors, []).append(resource)
        return tuple(
            ResourceGroup(
                tuple(resources),
                tuple(
                    FlavorQuotas(flavor, tuple((one, quotas[FlavorResource(flavor, one)]) for one in resources))
                    for flavor in flavors
                ),
            )
            for flavors, resources in groups.items()
        )

    def cohort(self) -> Cohort:
        parent = None if self.parent is None else CohortName(self.parent)
        weight = FairWeight(float(self.value("weight", "1")))
        return Cohort(CohortName(self.name), parent=parent, resource_groups=self.groups(), weight=weight)

    def cluster_queue(self) -> ClusterQueue:
        threshold = self.value("preempting_borrow")
        return ClusterQueue(
            ClusterQueueName(self.name),
            cohort=None if self.parent is None else CohortName(self.parent),
            resource_groups=self.groups(),
            strategy=QueueingStrategy.STRICT_FIFO if "strict" in self.words else QueueingStrategy.BEST_EFFORT_FIFO,
            namespace_selector=Selector(),
            fungibility=Fungibility(
                next_when_borrowing="try_next_borrowing" in self.words,
                next_when_preempting="stop_at_preempting" not in self.words,
                preference=Preference.PREEMPTION_OVER_BORROWING
                if "lower_level_first" in self.words
                else Preference.BORROWING_OVER_PREEMPTION,
            ),
            preemption=Preemption(
                within_cluster_queue=POLICIES[self.value("within", "never")],
                reclaim_within_cohort=POLICIES[self.value("reclaim", "never")],
                borrow_within_cohort=POLICIES["lower" if threshold else "never"],
                priority_threshold_max=int(threshold) if threshold.isdigit() else None,
            ),
            weight=FairWeight(float(self.value("weight", "1"))),
        )


def parse(text: str) -> list[_Line]:
    """The nodes of a drawing, parents first."""
    lines = [_Line(line) for line in text.splitlines() if line.strip()]
    path: list[_Line] = []
    for line in lines:
        while path and path[-1].depth >= line.depth:
            path.pop()
        if path:
            line.parent = path[-1].name
            path[-1].inner = True
        path.append(line)
    return lines


def quota_facts(text: str) -> Iterator[EngineEvent]:
    """The quota objects of a drawing, its flavors, and one LocalQueue per cluster queue, of its name."""
    lines = parse(text)
    for flavor in sorted({fr.flavor for line in lines for fr in line.quotas()}):
        yield FlavorSeen(ResourceFlavor(flavor))
    for line in lines:
        if line.inner:
            yield CohortSeen(line.cohort())
        else:
            yield ClusterQueueSeen(line.cluster_queue())
            yield LocalQueueSeen(LocalQueue(TEAM, LocalQueueName(line.name), ClusterQueueName(line.name)))


def workload(
    name: str,
    queue: str,
    size: int | dict[str, int] = 1,
    *,
    count: int = 1,
    priority: int = 0,
    created: int = 0,
    **rest: Any,
) -> Workload:
    """A workload of one pod set; *size* is of ``gpu`` or per resource; *rest* are fields of the pod set."""
    requests = {"gpu": size} if isinstance(size, int) else size
    pod_set = PodSet(
        "main", count, tuple(sorted((ResourceName(key), value) for key, value in requests.items())), **rest
    )
    return Workload(
        WorkloadUid(name),
        name,
        LocalQueueKey(TEAM, LocalQueueName(queue)),
        created * 1000,
        (pod_set,),
        priority=priority,
    )


class Lab:
    """An engine in a drawn tree. Its clock goes on by a second with every pass or cycle."""

    def __init__(self, drawing: str = "", policy: Policy = CLASSICAL) -> None:
        self.engine = Engine(policy)
        self.records: dict[str, Workload] = {}
        self.clock = 1_000
        self.draw(drawing)

    def draw(self, drawing: str) -> None:
        """Tell the engine the quota objects of *drawing*."""
        for fact in quota_facts(drawing):
            self.engine.apply(fact)

    def apply(self, *events: EngineEvent) -> None:
        """Tell it *events*."""
        for event in events:
            self.engine.apply(event)

    def waits(self, name: str, queue: str, size: int | dict[str, int] = 1, **rest: Any) -> Workload:
        """A workload is created and waits. Later calls create younger ones unless *created* says otherwise."""
        made = workload(name, queue, size, **{"created": len(self.records) + 1, **rest})
        self.records[name] = made
        self.apply(WorkloadSeen(made))
        return made

    def runs(
        self, name: str, queue: str, size: int | dict[str, int] = 1, *, at: int = 0, flavor: str = "f", **rest: Any
    ) -> Workload:
        """A workload that holds quota since *at*."""
        made = workload(name, queue, size, **{"created": len(self.records) + 1, **rest})
        self.records[name] = made = msgspec.structs.replace(made, admission=admission(made, queue, flavor, at))
        self.apply(WorkloadSeen(made))
        return made

    def cycle(self) -> CycleReport:
        """One cycle; admissions are confirmed."""
        self.clock += 1
        report = self.engine.cycle(self.clock * 1000)
        for uid in report.admitted:
            self.confirm(uid)
        return report

    def decide(self, *, confirm: bool = True) -> tuple[EngineEffect, ...]:
        """One pass; admissions are confirmed unless told otherwise."""
        self.clock += 1
        effects = self.engine.run_pass(self.clock * 1000).effects
        for effect in effects:
            if confirm and isinstance(effect, Admit):
                self.confirm(effect.uid)
        assert self.engine.check() == []
        return effects

    def confirm(self, uid: str) -> None:
        """The watch shows the admission of *uid*."""
        name = WorkloadUid(uid)
        self.records[uid] = msgspec.structs.replace(self.records[uid], admission=self.engine.admission_of(name))
        self.apply(WorkloadSeen(self.records[uid]))

    def gone(self, *names: str) -> None:
        """Workloads end."""
        for name in names:
            self.apply(WorkloadGone(WorkloadUid(name)))

    def admitted(self) -> list[str]:
        """Who gets in in one pass, in order."""
        return [effect.uid for effect in self.decide() if isinstance(effect, Admit)]

    def victims(self) -> dict[str, str]:
        """Who is told to stop in one pass, with the reason."""
        return {effect.uid: effect.reason.value for effect in self.decide() if isinstance(effect, Evict)}

    def flavors(self, name: str) -> dict[str, str]:
        """The flavors that *name* was given."""
        given = self.engine.admission_of(WorkloadUid(name))
        assert given is not None
        return {str(resource): str(flavor) for part in given.assignments for resource, flavor in part.flavors}

    def why(self, name: str) -> str:
        """Why *name* waits, as a sentence."""
        found = self.engine.reason_of(WorkloadUid(name))
        assert found is not None
        return found.sentence()

    def code(self, name: str) -> str:
        """Why *name* waits, as a code."""
        found = self.engine.reason_of(WorkloadUid(name))
        assert found is not None
        return found.code.value


def admission(made: Workload, cluster_queue: str, flavor: str, at: int) -> Admission:
    """*made* admitted as a whole to *flavor* of *cluster_queue* at second *at*."""
    parts = tuple(
        PodSetAssignment(
            part.name,
            tuple((resource, FlavorName(flavor)) for resource, _ in part.requests),
            tuple((resource, amount * part.count) for resource, amount in part.requests),
            part.count,
        )
        for part in made.pod_sets
    )
    return Admission(ClusterQueueName(cluster_queue), parts, at * 1000)


class Tree:
    """The bare ledger of a drawing, without an engine."""

    def __init__(self, drawing: str) -> None:
        self.world = World(CLASSICAL)
        for fact in quota_facts(drawing):
            self.world.apply(fact)
        self.world.settle()

    def node(self, name: str) -> Node:
        """The node *name*, queue or cohort."""
        leaves, cohorts = self.world.hierarchy.leaves, self.world.hierarchy.cohorts
        return leaves[ClusterQueueName(name)] if name in leaves else cohorts[CohortName(name)]

    def leaf(self, name: str) -> Leaf:
        """The cluster queue *name*."""
        return self.world.hierarchy.leaves[ClusterQueueName(name)]

    def cell(self, name: str, fr: FlavorResource = FR) -> Cell:
        """The cell of *name*."""
        return self.node(name).cells[fr]

    def redraw(self, drawing: str) -> None:
        """Change quotas."""
        for fact in quota_facts(drawing):
            self.world.apply(fact)
        self.world.settle()
