"""Answers. Of the engine: what a pass decided. Of the books: what kube-scheduler's questions get."""

import msgspec

from extender.model.effects import EngineEffect
from extender.model.names import NodeName, WorkloadUid


class PassResult(msgspec.Struct, frozen=True):
    """What one pass did.

    ``effects`` in the order of decision; ``looked`` are those that were tried and go on waiting; ``cycles`` is how many
    cycles it took. ``wake_at_ms`` is when the next pass is due even without a fact (a back-off that ends), None if
    never. ``taken_back`` were admitted and, with nobody told yet, put back in line for somebody who goes first.
    """

    effects: tuple[EngineEffect, ...]
    looked: tuple[WorkloadUid, ...]
    cycles: int
    wake_at_ms: int | None = None
    taken_back: tuple[WorkloadUid, ...] = ()


class FilterVerdict(msgspec.Struct, frozen=True):
    """Which nodes a pod may use.

    ``unresolvable`` maps a refused node to its reason; preemption on it would not help. ``failed`` is the same where
    it might.
    """

    nodes: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class NodeScore(msgspec.Struct, frozen=True):
    """A node's score, 0 to 10."""

    host: NodeName
    score: int


class NodeVictims(msgspec.Struct, frozen=True):
    """Victims of one node, from most to least important, and how many of them violate a disruption budget."""

    uids: list[str]
    budget_violations: int
