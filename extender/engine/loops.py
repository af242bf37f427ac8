"""Who took whose room since something real happened in a tree, so that rounds of preemption come to an end.

Each search looks at one preemptor, so three decisions that are right one by one can bring the tree back to where it
was: a reclaims from b, c has priority over a, b has a smaller share than c, and so on, while every victim's controller
makes it anew. So a tree remembers as a graph who took whom, by *kind*: a replacement has another UID, but the cluster
queue, priority and pod sets of the one it replaces. A victim is barred if taking it would close a circle, and if no
edge of that circle goes by a weaker right (that one is refused when its turn comes). Without a circle each kind is
taken by finitely many others, so preemption ends. The graph is forgotten when something changes that decisions did not
cause: an admitted workload ends by itself, more workloads come than were there, quota is edited. Follows: ADR 0018.
"""

from collections.abc import Callable, Iterator

from extender.model.effects import EvictionReason
from extender.model.workload import PodSet, Workload

Kind = tuple[str, int, tuple[PodSet, ...]]
"""Cluster queue, priority, pod sets."""

_RIGHTS = {
    EvictionReason.IN_COHORT_FAIR_SHARING: 0,
    EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: 0,
    EvictionReason.IN_CLUSTER_QUEUE: 1,
    EvictionReason.IN_COHORT_RECLAMATION: 2,
}
"""A balance gives way to priority, and priority to what somebody owns."""
EDGES_MAX = 10_000
"""More than this is forgotten whole: a bound on memory where much is taken and nothing ends."""


def kind_of(cluster_queue: str, workload: Workload) -> Kind:
    """What *workload* shares with the one that replaces it."""
    return (cluster_queue, workload.priority, workload.pod_sets)


class Barred:
    """The kinds that one preemptor may not take, by the right it would need."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: list[frozenset[Kind]]) -> None:
        self._kinds = kinds

    def __call__(self, cluster_queue: str, workload: Workload, reason: EvictionReason) -> bool:
        """Whether taking *workload* for *reason* would close a circle."""
        kinds = self._kinds[_RIGHTS[reason]]
        return bool(kinds) and kind_of(cluster_queue, workload) in kinds


class Loops:
    """The graph of one tree. ``population``: how many workloads the tree had when it began."""

    __slots__ = ("edges", "population", "takers")

    def __init__(self) -> None:
        self.takers: dict[Kind, dict[Kind, int]] = {}
        self.edges = 0
        self.population = 0

    def clear(self) -> None:
        """Something real happened: whatever was taken before is no sign of a loop."""
        self.takers.clear()
        self.edges = 0

    def copy(self) -> "Loops":
        """The same graph, on its own from now on."""
        made = Loops()
        made.takers = {victim: dict(takers) for victim, takers in self.takers.items()}
        made.edges, made.population = self.edges, self.population
        return made

    def note(self, taker: Kind, victim: Kind, reason: EvictionReason, *, population: Callable[[], int]) -> None:
        """*taker* took *victim*; *population* counts the tree. Within a kind the older take the newer, which ends."""
        if taker == victim:
            return
        if self.edges >= EDGES_MAX:
            self.clear()
        if not self.takers:
            self.population = population()
        takers = self.takers.setdefault(victim, {})
        self.edges += taker not in takers
        takers[taker] = max(takers.get(taker, 0), _RIGHTS[reason])

    def barred(self, preemptor: Kind) -> Barred | None:
        """Whom *preemptor* may not take; None if nobody ever took one of its kind. Cost: O(edges), once per search."""
        if not self.takers or preemptor not in self.takers:
            return None
        return Barred([self._reach(preemptor, right) for right in range(max(_RIGHTS.values()) + 1)])

    def _reach(self, preemptor: Kind, right: int) -> frozenset[Kind]:
        """Who took *preemptor*, or took somebody who did, and so on, always by *right* or a stronger one."""
        found: set[Kind] = set()
        rest = [preemptor]
        while rest:
            for taker, by in self.takers.get(rest.pop(), {}).items():
                if by >= right and taker not in found:
                    found.add(taker)
                    rest.append(taker)
        return frozenset(found - {preemptor})

    def all(self) -> Iterator[tuple[Kind, Kind, int]]:
        """Every edge: victim, taker, right."""
        for victim, takers in self.takers.items():
            for taker, right in takers.items():
                yield victim, taker, right
