"""Room that victims leave behind is promised to those who evicted them: the two views of a tree meanwhile.

*Present*: victims still use their room, so nobody else may start in it. *Future*: they are gone, and the promised room
belongs to the holders. Outside of a cycle the ledger holds charges only. During a cycle each hold is charged for what
its victims do not cover, so that both views are near; ``future`` and ``present`` step into one of them exactly.

This goes beyond the reference, which gives freed room to whoever comes first (ADRs 0010 and 0011). Without holds both
views are the ledger itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from extender.engine.hierarchy import Cell, Charge
from extender.engine.ledger import add_all, remove_all
from extender.engine.state import ClusterQueueState, Hold
from extender.model.names import FlavorResource, WorkloadUid

Amounts = list[tuple[Cell, int]]


class Promises:
    """The holds of one tree during one cycle, who is *leaving* it, and what the cycle itself promises."""

    def __init__(self, holders: Iterable[ClusterQueueState], leaving: Mapping[WorkloadUid, Charge]) -> None:
        self.leaving = dict(leaving)
        self.made: Amounts = []
        self._rest: dict[ClusterQueueState, Amounts] = {}
        self._covered: dict[ClusterQueueState, Amounts] = {}
        pool: dict[FlavorResource, int] = {}
        for charge in self.leaving.values():
            for cell, amount in charge.usage:
                pool[cell.fr] = pool.get(cell.fr, 0) + amount
        for state in holders:
            assert state.hold is not None
            self._split(state, state.hold, pool)
            add_all(self._rest[state])

    def _split(self, state: ClusterQueueState, hold: Hold, pool: dict[FlavorResource, int]) -> None:
        """What of *hold* the leaving victims cover, and the rest."""
        rest, covered = [], []
        for fr, amount in hold.usage.items():
            part = min(amount, pool.get(fr, 0))
            pool[fr] = pool.get(fr, 0) - part
            cell = state.leaf.cells[fr]
            rest.append((cell, amount - part))
            covered.append((cell, part))
        self._rest[state], self._covered[state] = rest, covered

    def lift(self, state: ClusterQueueState) -> tuple[Amounts, Amounts]:
        """From now on no room is held for *state*; what was is returned for ``lower``."""
        rest, covered = self._rest.pop(state), self._covered.pop(state)
        remove_all(rest)
        return rest, covered

    def lower(self, state: ClusterQueueState, held: tuple[Amounts, Amounts]) -> None:
        """Hold the room of *state* again."""
        self._rest[state], self._covered[state] = held
        add_all(held[0])

    @contextmanager
    def future(self, gone: Iterable[Charge] = ()) -> Iterator[None]:
        """All victims have left, *gone* too, and the holders are in."""
        removed = {**self.leaving, **{charge.workload.uid: charge for charge in gone}}
        for charge in removed.values():
            remove_all(charge.usage)
        for amounts in self._covered.values():
            add_all(amounts)
        yield
        for amounts in self._covered.values():
            remove_all(amounts)
        for charge in removed.values():
            add_all(charge.usage)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Only what is charged: nothing promised is in yet."""
        remove_all(self.made)
        for amounts in self._rest.values():
            remove_all(amounts)
        yield
        for amounts in self._rest.values():
            add_all(amounts)
        add_all(self.made)

    def promise(self, usage: Iterable[tuple[Cell, int]]) -> None:
        """Charge *usage* for the rest of the cycle."""
        for cell, amount in usage:
            self.made.append((cell, amount))
        add_all(usage)

    def close(self) -> None:
        """The cycle ends: the ledger holds charges only again."""
        remove_all(self.made)
        for amounts in self._rest.values():
            remove_all(amounts)
