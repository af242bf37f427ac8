"""In which order the heads of one tree are processed.

Classical: by borrow level, priority, age. Fair sharing: a tournament for every pick, in which the children of each
cohort compete by their share as if their head were admitted. A pick changes only the values on its own path, so each
costs O(depth · log heads). Source: ordering specification, section 3. Full ties, which the reference leaves open, end
with the UID.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from extender.engine.hierarchy import Cell, CohortNode, Leaf, Node
from extender.engine.ledger import add_usage, remove_usage
from extender.engine.queues import OrderKey
from extender.engine.shares import Share, share

ContestKey = tuple[bool, bool, float, OrderKey]


class Contender(Protocol):
    """A head with what it would use."""

    @property
    def leaf(self) -> Leaf:
        """Where it would be charged."""
        ...

    @property
    def key(self) -> OrderKey:
        """Priority, age, UID."""
        ...

    @property
    def level(self) -> int:
        """Its borrow level."""
        ...

    def claims(self) -> dict[Cell, int]:
        """What it would use."""
        ...

    def competed(self, cohort: str, value: Share) -> None:
        """Take note of the share by which it competes in *cohort*."""
        ...


def classical(contenders: Sequence[Contender]) -> list[Contender]:
    """Lower borrow level first, then higher priority, then older, then smaller UID."""
    return sorted(contenders, key=lambda contender: (contender.level, contender.key))


class _Arena:
    """A cohort: the contests of its children, best first."""

    __slots__ = ("contests", "node")

    def __init__(self, node: CohortNode) -> None:
        self.node = node
        self.contests: list[tuple[ContestKey, Contender]] = []


class Tournament:
    """Picks the contenders of one cohort tree one by one; the ledger may change between picks by what was picked."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self._arenas: dict[CohortNode, _Arena] = {}
        self._roots: list[_Arena] = []
        children: dict[_Arena, list[_Arena]] = {}
        for contender in contenders:
            assert contender.leaf.parent is not None
            arena = self._arena(contender.leaf.parent, children)
            self._enter(arena, contender.leaf, contender)
        for root in self._roots:
            self._fill(root, children)

    def _arena(self, node: CohortNode, children: dict[_Arena, list[_Arena]]) -> _Arena:
        known = self._arenas.get(node)
        if known is None:
            known = self._arenas[node] = _Arena(node)
            if node.parent is None:
                self._roots.append(known)
            else:
                children.setdefault(self._arena(node.parent, children), []).append(known)
        return known

    def _fill(self, arena: _Arena, children: dict[_Arena, list[_Arena]]) -> None:
        """Let the winners of the arenas below compete here."""
        for child in children.get(arena, ()):
            self._fill(child, children)
            self._enter(arena, child.node, child.contests[0][1])

    def _enter(self, arena: _Arena, child: Node, contender: Contender) -> None:
        """Value *contender* as it stands for *child*: what it claims is charged, looked at and taken back."""
        claims = contender.claims()
        leaf = contender.leaf
        for cell, amount in claims.items():
            add_usage(cell, amount)
        value = share(child)[1]
        borrows = False
        for cell, amount in claims.items():
            if amount > 0:
                here = cell if child is leaf else child.cells[cell.fr]
                borrows = borrows or here.usage > here.subtree
        for cell, amount in claims.items():
            remove_usage(cell, amount)
        contender.competed(arena.node.name, value)
        heappush(arena.contests, ((borrows, value.endless, value.value, contender.key), contender))

    def __iter__(self) -> Iterator[Contender]:
        """The contenders in order. Each must be dealt with before the next is asked for."""
        for root in self._roots:
            while root.contests:
                winner = root.contests[0][1]
                yield winner
                self._leave(winner)

    def _leave(self, winner: Contender) -> None:
        """Take *winner* out of every arena on its path, and let the next of each arena compete above."""
        below: Node = winner.leaf
        for node in winner.leaf.path():
            arena = self._arenas[node]
            heappop(arena.contests)
            if isinstance(below, CohortNode):
                left = self._arenas[below].contests
                if left:
                    self._enter(arena, below, left[0][1])
            below = node
