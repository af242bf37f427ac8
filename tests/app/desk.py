"""A leading driver on a clock of its own, what it has submitted, and the queues and pods it knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import orjson

from extender.driver import Driver
from extender.engine.engine import Engine
from extender.model.effects import EvictPod, RecordEvent, SetPodCondition, SetQueueStatus, UngatePod
from extender.model.events import (
    ClusterQueueSeen,
    CohortSeen,
    Event,
    FlavorSeen,
    LocalQueueSeen,
    NodeSeen,
    PodGone,
    PodSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueName,
    Namespace,
    NodeName,
)
from extender.model.pods import Node, Pod
from extender.model.policy import DEFAULT_STRATEGIES, Policy
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
from extender.pods.books import Books
from extender.pods.timers import Times
from tests.pods.build import GPU, pod

T = TypeVar("T")
ANY = FlavorName("any")
LAB = Namespace("research")
NODE = NodeName("n1")


class Meter:
    """Remembers what was counted."""

    def __init__(self) -> None:
        self.evictions: list[tuple[str, str, str | None]] = []
        self.gauges: dict[tuple[str, ...], float] = {}

    def attempt(self, *, admitted: bool, seconds: float) -> None:
        """A pass ended."""

    def admitted(self, cluster_queue: str, *, waited_s: float) -> None:
        """A workload was admitted."""

    def evicted(self, cluster_queue: str, *, reason: str, preempting: str | None = None) -> None:
        """A workload was told to stop."""
        self.evictions.append((cluster_queue, reason, preempting))

    def leading(self, leads: bool) -> None:
        """Whether this replica writes."""

    def violated(self, invariant: str) -> None:
        """What must always hold did not."""
        raise AssertionError(invariant)

    def pending(self, cluster_queue: str, *, active: int, inadmissible: int) -> None:
        """How many wait."""
        self.gauges["pending", cluster_queue] = active + inadmissible

    def active(self, cluster_queue: str, count: int) -> None:
        """How many hold quota."""
        self.gauges["active", cluster_queue] = count

    def usage(self, cluster_queue: str, flavor: str, resource: str, amount: float) -> None:
        """Quota in use."""
        self.gauges["usage", cluster_queue, flavor, resource] = amount

    def share(self, cluster_queue: str, weighted_share: float) -> None:
        """The weighted share."""
        self.gauges["share", cluster_queue] = weighted_share

    def forget(self, cluster_queue: str) -> None:
        """The ClusterQueue is gone."""
        self.gauges = {key: value for key, value in self.gauges.items() if key[1] != cluster_queue}


class Desk:
    """Facts go in by ``take`` and the short forms below it; ``turn`` lets it decide; ``sent`` is what it submitted."""

    def __init__(
        self,
        *,
        fair: bool = False,
        times: Times = Times(),  # noqa: B008 - frozen
        books: Books | None = None,
    ) -> None:
        self.now_ms = 1_000_000_000
        self.effects: list[object] = []
        self.meter = Meter()
        self.pods: dict[str, Pod] = {}
        self.driver = Driver(
            engine=Engine(Policy(fair_sharing=DEFAULT_STRATEGIES if fair else ())),
            books=books or Books(),
            submit=self.effects.append,
            clock_ms=lambda: self.now_ms,
            meter=self.meter,
            times=times,
        )
        self.driver.lead(True)
        self.take(FlavorSeen(ResourceFlavor(ANY)), NodeSeen(Node(NODE)))

    def take(self, *events: Event) -> None:
        """Facts from the watches."""
        self.driver.take(events)

    def cohort(self, name: str, parent: str | None = None) -> None:
        """A cohort without quota of its own."""
        self.take(CohortSeen(Cohort(CohortName(name), parent=CohortName(parent) if parent else None)))

    def queue(self, name: str = "main", gpus: int = 2, *, cohort: str = "", **spec: object) -> None:
        """A ClusterQueue ``NAME-cq`` and a LocalQueue NAME; anybody lower may be preempted."""
        fields: dict[str, Any] = {
            "cohort": CohortName(cohort) if cohort else None,
            "resource_groups": (ResourceGroup((GPU,), (FlavorQuotas(ANY, ((GPU, Quota(gpus)),)),)),),
            "namespace_selector": Selector(),
            "preemption": Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
            **spec,
        }
        cluster_queue = ClusterQueueName(f"{name}-cq")
        self.take(ClusterQueueSeen(ClusterQueue(cluster_queue, **fields)))
        self.take(LocalQueueSeen(LocalQueue(LAB, LocalQueueName(name), cluster_queue)))

    def submit(self, *names: str, queue: str = "main", **changes: object) -> None:
        """New gated pods of one GPU, created now."""
        for name in names:
            created = {"created_ms": self.now_ms, "queue": LocalQueueName(queue)}
            self.show(pod(name, **{**created, **changes}))

    def show(self, shown: Pod) -> None:
        """A pod is seen as it is."""
        self.pods[shown.name] = shown
        self.take(PodSeen(shown))

    def change(self, name: str, **changes: object) -> None:
        """A pod is seen changed."""
        self.show(msgspec.structs.replace(self.pods[name], **changes))

    def gone(self, *names: str) -> None:
        """Pods are deleted."""
        for name in names:
            self.take(PodGone(self.pods.pop(name).uid))

    def turn(self, *, after_ms: int = 0) -> list[object]:
        """Time passes, it decides; what it submitted."""
        self.now_ms += after_ms
        self.effects.clear()
        self.driver.turn()
        return list(self.effects)

    def run(self, *, ready: bool = True) -> list[str]:
        """Let it decide, and let everything that it ungates get a node; the names."""
        writes = of(self.turn(), UngatePod)
        for write in writes:
            self.driver.done(write)
            self.change(
                write.name, gates=(), admission=write.admission, node=NODE, phase="Running", ready=ready, managed=True
            )
        return [write.name for write in writes]


def of(effects: Iterable[object], kind: type[T]) -> list[T]:
    """Those of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def evictions(effects: Iterable[object]) -> list[tuple[str, str, str]]:
    """Who is evicted, why, and what is said."""
    return [(effect.name, effect.reason, effect.message) for effect in of(effects, EvictPod)]


def conditions(effects: Iterable[object]) -> dict[str, tuple[str, str]]:
    """What pods are told, by name."""
    return {effect.name: (effect.reason, effect.message) for effect in of(effects, SetPodCondition)}


def told(effects: Iterable[object]) -> list[tuple[str, str, str]]:
    """Events."""
    return [(effect.name, effect.reason, effect.message) for effect in of(effects, RecordEvent)]


def statuses(effects: Iterable[object]) -> dict[tuple[str, str], dict]:
    """Statuses by kind and name."""
    return {(effect.kind, effect.name): orjson.loads(effect.status) for effect in of(effects, SetQueueStatus)}
