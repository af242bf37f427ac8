"""The cohort tree: its nodes, the edges between them, and one cell of numbers per node and flavor-resource.

A *leaf* is a cluster queue, every other node a cohort. Cohorts come into being when they are named and go when nothing
names them (quota specification, section 2.3). A walk to the root that meets a node twice is a cycle: its whole
component becomes one *cyclic* tree, in which nothing is decided.

Edges change at once, numbers later: a change marks its tree *stale*, and ``Hierarchy.settle`` regroups the stale nodes
into trees and has their numbers computed anew. So reading 3,000 cluster queues at start costs one computation.
"""

from collections.abc import Callable, Iterable, Iterator

from extender.engine.loops import Loops
from extender.model.names import ClusterQueueName, CohortName, FlavorResource, ResourceName, WorkloadUid
from extender.model.quota import ClusterQueue, Cohort, Quota, ResourceGroup, quotas_by_flavor_resource
from extender.model.workload import Admission, Workload

ChargeKey = tuple[bool, int, int, str]


class Cell:
    """The numbers of one node for one flavor-resource, in canonical units.

    ``subtree`` (S), ``local`` (L, what is kept from the parent), ``usage`` (U) and ``potential`` (M, available if all
    were idle) are those of the quota specification, section 2. ``cap`` is the most that may be used of the parent:
    S − L + borrowing limit, None without one. ``declared``: some quota of the subtree names this flavor-resource.
    ``bounded``: no value from here to the root is unlimited, so that plain arithmetic is exact.
    """

    __slots__ = (
        "bounded",
        "cap",
        "declared",
        "fr",
        "limit",
        "local",
        "node",
        "nominal",
        "parent",
        "potential",
        "subtree",
        "usage",
    )

    def __init__(self, node: "Node", fr: FlavorResource) -> None:
        self.node = node
        self.fr = fr
        self.parent: Cell | None = None
        self.nominal = 0
        self.limit: int | None = None
        self.cap: int | None = None
        self.subtree = 0
        self.local = 0
        self.usage = 0
        self.potential = 0
        self.declared = False
        self.bounded = True


class Node:
    """A node of the tree. ``height``: most edges down to an active leaf (quota specification, section 5)."""

    __slots__ = ("cells", "height", "lendable", "name", "parent", "quotas", "tree", "weight")

    def __init__(self, name: str) -> None:
        self.name = name
        self.parent: CohortNode | None = None
        self.quotas: dict[FlavorResource, Quota] = {}
        self.cells: dict[FlavorResource, Cell] = {}
        self.weight = 1.0
        self.tree: Tree | None = None
        self.height = 0
        self.lendable: dict[ResourceName, int] | None = None

    def path(self) -> "Iterator[CohortNode]":
        """Its ancestors, from the parent to the root."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def cell(self, fr: FlavorResource) -> Cell:
        """Its cell for *fr*, made if there is none yet: of zero quota, and linked when the tree is settled next."""
        found = self.cells.get(fr)
        if found is None:
            found = self.cells[fr] = Cell(self, fr)
        return found

    def set_quotas(self, groups: tuple[ResourceGroup, ...]) -> None:
        """Replace what it owns; the numbers follow when the tree is settled."""
        self.quotas = quotas_by_flavor_resource(groups)


class CohortNode(Node):
    """An inner node. ``explicit``: a Cohort object exists for it."""

    __slots__ = ("cohorts", "explicit", "leaves")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.explicit = False
        self.cohorts: dict[str, CohortNode] = {}
        self.leaves: dict[str, Leaf] = {}

    def adopt(self, child: Node) -> None:
        """Take *child* in."""
        if isinstance(child, Leaf):
            self.leaves[child.name] = child
        else:
            assert isinstance(child, CohortNode)
            self.cohorts[child.name] = child

    def disown(self, child: Node) -> None:
        """*child* is no child any more."""
        if isinstance(child, Leaf):
            del self.leaves[child.name]
        else:
            del self.cohorts[child.name]


class Leaf(Node):
    """A cluster queue as the ledger sees it: its spec, and the workloads that are charged to it.

    ``ranked`` holds the charges in the order in which they are taken as victims. ``generation`` grows when something
    is charged or leaves, or the quota of the tree changes. ``active``: it takes part in decisions.
    """

    __slots__ = ("active", "charges", "generation", "ranked", "spec")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.spec: ClusterQueue | None = None
        self.active = False
        self.charges: dict[WorkloadUid, Charge] = {}
        self.ranked: list[tuple[ChargeKey, Charge]] = []
        self.generation = 0


class Charge:
    """One workload that holds quota of a leaf. ``usage`` keeps zero amounts: they name what it could free.

    ``assumed``: decided here, not yet seen in the world. ``evicting``: told to stop by us; ``evicted``: by us or as
    the world shows it.
    """

    __slots__ = ("admission", "assumed", "evicted", "evicting", "key", "leaf", "preemptor", "usage", "workload")

    def __init__(
        self,
        workload: Workload,
        admission: Admission,
        leaf: Leaf,
        usage: tuple[tuple[Cell, int], ...],
        *,
        assumed: bool,
    ) -> None:
        self.workload = workload
        self.admission = admission
        self.leaf = leaf
        self.usage = usage
        self.assumed = assumed
        self.evicting = False
        self.evicted = workload.evicted
        self.preemptor: WorkloadUid | None = None
        self.key = self.rank()

    def rank(self) -> ChargeKey:
        """Where it stands among victims: evicted first, lower priority, later admission, smaller UID.

        Follows: preemption specification, section 3, keys 1, 4, 5 and 6.
        """
        return (not self.evicted, self.workload.priority, -self.admission.at_ms, self.workload.uid)

    def uses(self, wanted: Iterable[FlavorResource]) -> bool:
        """Whether it could free one of *wanted*."""
        return any(cell.fr in wanted for cell, _ in self.usage)


class Tree:
    """A root with everything below it; ``cyclic`` ones have no usable root and decide nothing.

    ``ready`` names the active leaves that may have a head, ``parked`` those with parked workloads, ``holders`` those
    that keep room for a preemptor, ``leaving`` the charges that were told to stop. ``seen`` are the states of the heads
    since something last moved, by which the cycle knows that going on is pointless. ``reserved`` is what the last cycle
    kept for others, and for whom; ``keepers`` are the cells that keep quota from others. ``loops`` knows
    who took whose room. ``excused``: facts, not decisions, may have taken it above its quota.
    """

    __slots__ = (
        "cyclic",
        "excused",
        "holders",
        "keepers",
        "leaves",
        "leaving",
        "loops",
        "members",
        "parked",
        "ready",
        "reserved",
        "root",
        "seen",
        "stale",
    )

    def __init__(self, root: Node, members: list[Node], *, cyclic: bool) -> None:
        self.root = root
        self.members = members
        self.leaves = [member for member in members if isinstance(member, Leaf)]
        self.cyclic = cyclic
        self.stale = False
        self.excused = True
        self.ready: dict[ClusterQueueName, None] = {}
        self.parked: dict[ClusterQueueName, None] = {}
        self.holders: dict[ClusterQueueName, None] = {}
        self.reserved: list[tuple[FlavorResource, int, WorkloadUid]] = []
        self.keepers: dict[FlavorResource, list[Cell]] = {}
        self.leaving: dict[WorkloadUid, Charge] = {}
        self.loops = Loops()
        self.seen: set[tuple[object, ...]] = set()

    @property
    def rank(self) -> tuple[str, bool]:
        """Trees are worked through in this order; it changes nothing, since they do not touch each other."""
        return (self.root.name, isinstance(self.root, Leaf))


class Hierarchy:
    """All nodes and edges."""

    def __init__(self) -> None:
        self.cohorts: dict[CohortName, CohortNode] = {}
        self.leaves: dict[ClusterQueueName, Leaf] = {}
        self._unsettled: dict[Node, None] = {}

    @property
    def settled(self) -> bool:
        """Whether all numbers follow from all edges."""
        return not self._unsettled

    def leaf(self, name: ClusterQueueName) -> Leaf:
        """The leaf *name*, made without quota if it is not known."""
        found = self.leaves.get(name)
        if found is None:
            found = self.leaves[name] = Leaf(name)
            self.touch(found)
        return found

    def touch(self, node: Node) -> None:
        """Its numbers, or those of its tree, are no longer what the edges and quotas say."""
        self._unsettled[node] = None
        if node.tree is not None:
            node.tree.stale = True

    def set_cluster_queue(self, spec: ClusterQueue) -> Leaf:
        """Take over the quotas, weight and cohort of *spec*."""
        leaf = self.leaf(spec.name)
        leaf.spec = spec
        leaf.weight = spec.weight.value
        leaf.set_quotas(spec.resource_groups)
        self._move(leaf, spec.cohort)
        return leaf

    def drop_cluster_queue(self, name: ClusterQueueName) -> None:
        """The object is gone: no quota and no cohort any more; what is charged stays charged.

        Outside of every cohort, since after a restart nothing tells which one it was in.
        """
        leaf = self.leaves[name]
        leaf.spec = None
        leaf.set_quotas(())
        self._move(leaf, None)

    def forget_leaf(self, leaf: Leaf) -> None:
        """Nothing is left of a cluster queue that is gone."""
        self._leave(leaf)
        self._unsettled.pop(leaf, None)
        if leaf.tree is not None:
            leaf.tree.stale = True
            self._unsettled.update(dict.fromkeys(member for member in leaf.tree.members if member is not leaf))
        del self.leaves[ClusterQueueName(leaf.name)]

    def set_cohort(self, spec: Cohort) -> None:
        """Take over the quotas, weight and parent of *spec*; children it already has stay."""
        node = self._cohort(spec.name)
        node.explicit = True
        node.weight = spec.weight.value
        node.set_quotas(spec.resource_groups)
        self._move(node, spec.parent)

    def drop_cohort(self, name: CohortName) -> None:
        """The object is gone: quota, limits, weight and parent are lost, children stay while there are any."""
        node = self.cohorts[name]
        node.explicit = False
        node.weight = 1.0
        node.set_quotas(())
        self._move(node, None)
        self._sweep(node)

    def _cohort(self, name: CohortName) -> CohortNode:
        found = self.cohorts.get(name)
        if found is None:
            found = self.cohorts[name] = CohortNode(name)
            self.touch(found)
        return found

    def _move(self, node: Node, parent: CohortName | None) -> None:
        self.touch(node)
        target = None if parent is None else self._cohort(parent)
        if target is node.parent:
            return
        self._leave(node)
        node.parent = target
        if target is not None:
            target.adopt(node)
            self.touch(target)

    def _leave(self, node: Node) -> None:
        parent = node.parent
        if parent is not None:
            parent.disown(node)
            node.parent = None
            self.touch(parent)
            self._sweep(parent)

    def _sweep(self, node: CohortNode) -> None:
        """An implicit cohort without children is no more; so may be its parent."""
        if node.explicit or node.cohorts or node.leaves:
            return
        self._leave(node)
        self.cohorts.pop(CohortName(node.name), None)
        self._unsettled.pop(node, None)

    def settle(self, compute: Callable[["Tree"], None]) -> list[Tree]:
        """Regroup what changed into trees, have *compute* work out their numbers, and return them.

        Cost: O(nodes of the trees that changed).
        """
        nodes: dict[Node, None] = dict.fromkeys(node for node in self._unsettled if self._lives(node))
        for tree in {node.tree: None for node in self._unsettled if node.tree is not None}:
            nodes.update(dict.fromkeys(member for member in tree.members if self._lives(member)))
        self._unsettled = {}
        cyclic: dict[Node, bool] = {}
        for node in nodes:
            root, loops = _root(node)
            cyclic[root] = loops
        trees = []
        for root, loops in cyclic.items():
            tree = Tree(root, list(_subtree(root)), cyclic=loops)
            for member in tree.members:
                member.tree = tree
            compute(tree)
            trees.append(tree)
        return trees

    def _lives(self, node: Node) -> bool:
        if isinstance(node, Leaf):
            return self.leaves.get(ClusterQueueName(node.name)) is node
        return self.cohorts.get(CohortName(node.name)) is node


def _root(node: Node) -> tuple[Node, bool]:
    """The root above *node*; in a cycle its member of the smallest name, and True."""
    passed: dict[Node, None] = {}
    here = node
    while here.parent is not None:
        if here in passed:
            ring = list(passed)
            return min(ring[ring.index(here) :], key=lambda member: member.name), True
        passed[here] = None
        here = here.parent
    return here, False


def _subtree(root: Node) -> Iterator[Node]:
    """*root* and everything below it, parents first, each node once (also when the edges run in a circle)."""
    met = {root}
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, CohortNode):
            for child in (*node.leaves.values(), *node.cohorts.values()):
                if child not in met:
                    met.add(child)
                    stack.append(child)
