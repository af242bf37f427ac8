"""Dominant resource share: how much of what could be lent to it a node has borrowed, over its weight.

A share is compared as the pair ``(endless, value)``: a borrowing node of weight 0 is above every other one, and two of
them are told apart by the undivided ratio, which then is the value. IEEE doubles in the reference's order of
operations: borrowed · 1000 / lendable, then / weight. Source: preemption specification, section 6.
"""

from typing import NamedTuple

from extender.engine.hierarchy import CohortNode, Node
from extender.model.amounts import UNLIMITED, add
from extender.model.names import ResourceName

PUBLISHED_MAX = 2**63 - 1


class Share(NamedTuple):
    """A share as it is compared: ``endless`` for weight 0 while borrowing, ``value`` without unit."""

    endless: bool
    value: float

    def published(self) -> int:
        """What the status says: rounded up, 2^63−1 for an endless one and for what 64 bits do not hold."""
        return PUBLISHED_MAX if self.endless or self.value >= PUBLISHED_MAX else -int(-self.value // 1)

    def exact(self) -> float:
        """The share as a number, infinite for an endless one."""
        return float("inf") if self.endless else self.value


ZERO = Share(endless=False, value=0.0)


def share(node: Node) -> tuple[bool, Share]:
    """Whether *node* borrows at all, and its share: (False, zero) for a root, and where edges run in a circle.

    Cost: O(flavor-resources of the node).
    """
    parent = node.parent
    if parent is None or (node.tree is not None and node.tree.cyclic):
        return False, ZERO
    borrowed: dict[ResourceName, int] | None = None
    for fr, cell in node.cells.items():
        above = cell.usage - cell.subtree
        if above > 0 and cell.declared and cell.subtree != UNLIMITED:
            if borrowed is None:
                borrowed = {}
            borrowed[fr.resource] = borrowed.get(fr.resource, 0) + above
    if borrowed is None:
        return False, ZERO
    lendable = parent.lendable if parent.lendable is not None else _lendable(parent)
    ratio = 0.0
    for resource, amount in borrowed.items():
        lent = lendable.get(resource, 0)
        if lent > 0:
            ratio = max(ratio, float(amount) * 1000.0 / float(lent))
    if ratio == 0.0:
        return True, ZERO
    if node.weight == 0.0:
        return True, Share(endless=True, value=ratio)
    return True, Share(endless=False, value=ratio / node.weight)


def _lendable(node: CohortNode) -> dict[ResourceName, int]:
    """Per resource, the potential of *node* over all flavors that its root knows."""
    root: Node = node
    for above in node.path():
        root = above
    totals: dict[ResourceName, int] = {}
    for fr, cell in root.cells.items():
        if not cell.declared:
            continue
        known = node.cells.get(fr)
        for above in node.path():
            if known is not None:
                break
            known = above.cells.get(fr)
        totals[fr.resource] = add(totals.get(fr.resource, 0), cell.potential if known is None else known.potential)
    node.lendable = totals
    return totals
