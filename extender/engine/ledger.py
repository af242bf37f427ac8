"""Quota and usage up the tree: what a node may use now, what it could use at best, and where it would borrow from.

All arithmetic is per flavor-resource, along the cells of one path. Usage goes up only as far as it exceeds what a node
keeps, so that charging costs O(depth), and removing undoes adding exactly. There is no snapshot: a *trial* charges or
releases, looks, and takes it back. Source: quota specification, sections 2 to 5.

Usage is an exact ``int``. Quotas may be ``UNLIMITED``; only paths that hold such a value pay for its arithmetic.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from extender.engine.hierarchy import Cell, Charge, CohortNode, Leaf, Node, Tree
from extender.model.amounts import UNLIMITED, add, subtract
from extender.model.names import FlavorResource

Amounts = Iterable[tuple[Cell, int]]


def available(cell: Cell) -> int:
    """How much more its node may use now.

    Range: negative while an ancestor is over-admitted; a cluster queue then has nothing (``fits`` knows).
    Cost: O(depth). Follows: quota specification, section 3.
    """
    if not cell.bounded:
        return _available_unlimited(cell)
    kept = 0
    most: int | None = None
    parent = cell.parent
    while parent is not None:
        idle = cell.local - cell.usage
        if idle > 0:
            kept += idle
            if cell.cap is not None and (most is None or kept + cell.cap < most):
                most = kept + cell.cap
        elif cell.cap is not None and (most is None or kept + cell.cap + idle < most):
            most = kept + cell.cap + idle
        cell = parent
        parent = cell.parent
    free = kept + cell.subtree - cell.usage
    return free if most is None or free < most else most


def _available_unlimited(cell: Cell) -> int:
    usage = min(cell.usage, UNLIMITED)
    if cell.parent is None:
        return subtract(cell.subtree, usage)
    above = available(cell.parent)
    if cell.cap is not None:
        above = min(above, subtract(cell.cap, max(0, subtract(usage, cell.local))))
    return add(max(0, subtract(cell.local, usage)), above)


def add_usage(cell: Cell, amount: int) -> None:
    """Charge *amount* ≥ 0; what exceeds the part that the node keeps goes to its parent. Nothing exceeds endless."""
    here: Cell | None = cell
    while here is not None and amount > 0:
        kept = here.local - here.usage
        here.usage += amount
        if here.local == UNLIMITED:
            return
        if kept > 0:
            amount -= kept
        here = here.parent


def remove_usage(cell: Cell, amount: int) -> None:
    """Take back *amount* ≥ 0: the exact inverse of ``add_usage``."""
    here: Cell | None = cell
    while here is not None and amount > 0:
        over = here.usage - here.local
        here.usage -= amount
        if here.local == UNLIMITED:
            return
        if over < amount:
            amount = over
        here = here.parent


def add_all(amounts: Amounts) -> None:
    """Charge several cells."""
    for cell, amount in amounts:
        add_usage(cell, amount)


def remove_all(amounts: Amounts) -> None:
    """Take back several charges."""
    for cell, amount in amounts:
        remove_usage(cell, amount)


def fits(amounts: Amounts) -> bool:
    """Whether each amount is within what its cluster queue has available; nothing always fits."""
    return all(amount <= 0 or amount <= available(cell) for cell, amount in amounts)


def level(cell: Cell, amount: int) -> tuple[int, bool]:
    """How far up *amount* more has to borrow, and whether the subtree that can hold it is not the whole tree.

    0: within nominal; else the height of the lowest cohort whose subtree quota can take it, or of the root if none can.
    Borrowing limits play no part. Follows: quota specification, section 5.
    """
    if cell.parent is None or _holds(cell, amount):
        return 0, cell.parent is not None
    here: Cell = cell
    while here.parent is not None:
        idle = here.local - here.usage
        if idle > 0:
            amount -= idle
        here = here.parent
        if _holds(here, amount):
            return here.node.height, here.parent is not None
    return here.node.height, False


def _holds(cell: Cell, amount: int) -> bool:
    return cell.subtree >= cell.usage + amount or cell.subtree == UNLIMITED


def within_quota(node: Node, frs: Iterable[FlavorResource]) -> bool:
    """Whether *node* uses no more than its subtree quota of each of *frs*."""
    cells = node.cells
    for fr in frs:
        cell = cells.get(fr)
        if cell is not None and cell.usage > cell.subtree:
            return False
    return True


def charge(record: Charge) -> None:
    """Enter *record* into its leaf's books and charge its usage."""
    leaf = record.leaf
    leaf.charges[record.workload.uid] = record
    insort(leaf.ranked, (record.key, record))
    leaf.generation += 1
    if leaf.tree is None or leaf.tree.stale:  # the cohorts are summed up when the tree is settled
        for cell, amount in record.usage:
            cell.usage += amount
    else:
        add_all(record.usage)


def release(record: Charge) -> None:
    """Undo ``charge``."""
    leaf = record.leaf
    del leaf.charges[record.workload.uid]
    _unrank(record)
    leaf.generation += 1
    if leaf.tree is None or leaf.tree.stale:
        for cell, amount in record.usage:
            cell.usage -= amount
    else:
        remove_all(record.usage)


def rerank(record: Charge) -> None:
    """Its place among victims may have changed."""
    key = record.rank()
    if key != record.key:
        _unrank(record)
        record.key = key
        insort(record.leaf.ranked, (key, record))


def _unrank(record: Charge) -> None:
    ranked = record.leaf.ranked
    del ranked[bisect_left(ranked, (record.key,))]


def compute(tree: Tree) -> None:
    """Work out every number of *tree* from quotas and the usage of its leaves.

    A cyclic tree gets numbers of single nodes only: nothing is decided in it, but its usage stays known.
    """
    for node in reversed(tree.members):
        _prepare(node)
    if tree.cyclic:
        for node in tree.members:
            node.height = 0
            for cell in node.cells.values():
                cell.parent, cell.cap, cell.local, cell.potential = None, None, 0, cell.subtree
                cell.bounded = cell.subtree != UNLIMITED
        return
    for node in reversed(tree.members):
        _sum_up(node)
    for node in tree.members:
        _look_up(node)
        for fr, cell in node.cells.items():
            if cell.local > 0:
                tree.keepers.setdefault(fr, []).append(cell)
        if isinstance(node, Leaf):
            node.generation += 1


def _prepare(node: Node) -> None:
    if isinstance(node, Leaf):
        node.cells = {fr: cell for fr, cell in node.cells.items() if cell.usage or fr in node.quotas}
    else:
        node.cells = {}
    for fr in node.quotas:
        if fr not in node.cells:
            node.cells[fr] = Cell(node, fr)
    node.lendable = None
    for fr, cell in node.cells.items():
        quota = node.quotas.get(fr)
        cell.declared = quota is not None
        cell.nominal = cell.subtree = 0 if quota is None else quota.nominal
        cell.limit = None if quota is None else quota.borrowing_limit


def _sum_up(node: Node) -> None:
    """Own cells are complete once the children's are: then give the parent its part."""
    if isinstance(node, CohortNode):
        below = [child.height for child in node.cohorts.values()]
        below += [0 for leaf in node.leaves.values() if leaf.active]
        node.height = 1 + max(below) if below else 0
    parent = node.parent
    for fr, cell in node.cells.items():
        quota = node.quotas.get(fr)
        lends = None if quota is None or parent is None else quota.lending_limit
        cell.local = 0 if lends is None else max(0, subtract(cell.subtree, lends))
        cell.parent = None
        if parent is None:
            continue
        above = parent.cells.get(fr)
        if above is None:
            above = parent.cells[fr] = Cell(parent, fr)
        above.declared = above.declared or cell.declared
        above.subtree = add(above.subtree, subtract(cell.subtree, cell.local))
        above.usage += 0 if cell.local == UNLIMITED else max(0, cell.usage - cell.local)
        cell.parent = above


def _look_up(node: Node) -> None:
    """Parents are complete: limits, potentials and whether plain arithmetic will do."""
    for cell in node.cells.values():
        above = cell.parent
        if above is None:
            cell.cap = None
            cell.potential = cell.subtree
            cell.bounded = cell.subtree != UNLIMITED
            continue
        cell.potential = add(cell.local, above.potential)
        cell.cap = None
        if cell.limit is not None:
            cell.cap = add(subtract(cell.subtree, cell.local), cell.limit)
            cell.potential = min(cell.potential, add(cell.subtree, cell.limit))
        cell.bounded = above.bounded and UNLIMITED not in (cell.subtree, cell.local, cell.cap)
