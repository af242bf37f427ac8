"""A second, obvious model of quota: the formulas of the quota specification, worked out anew for every question.

It shares no code with the engine, keeps no state between questions and takes no short cut, so that a disagreement
points at the engine. Amounts are plain ints; unlimited quota is not modelled, the stories do without it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from extender.model.names import ClusterQueueName, FlavorName, FlavorResource, ResourceName
from extender.model.quota import ClusterQueue, Cohort, Quota, ResourceFlavor, StopPolicy, Taint, Toleration
from extender.model.workload import PodSet

Usage = Mapping[FlavorResource, int]
NONE = Quota(0)


class Node(NamedTuple):
    """A node of the tree; cohorts and cluster queues may have the same name."""

    kind: str
    name: str


class PlainQuota:
    """A tree of quotas with the usage of its cluster queues."""

    def __init__(
        self,
        cohorts: Iterable[Cohort],
        queues: Iterable[ClusterQueue],
        usage: Mapping[str, Usage],
    ) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.quotas: dict[Node, dict[FlavorResource, Quota]] = {}
        self.parents: dict[Node, Node] = {}
        self.children: dict[Node, list[Node]] = {}
        for kind, record in [("cohort", cohort) for cohort in cohorts] + [("cq", cq) for cq in self.queues.values()]:
            node = Node(kind, record.name)
            self.quotas[node] = {
                FlavorResource(flavor.flavor, resource): quota
                for group in record.resource_groups
                for flavor in group.flavors
                for resource, quota in flavor.quotas
            }
            above = record.parent if isinstance(record, Cohort) else record.cohort
            if above is not None:
                self.parents[node] = Node("cohort", above)
                self.children.setdefault(Node("cohort", above), []).append(node)
                self.quotas.setdefault(Node("cohort", above), {})
        self.used = {Node("cq", name): dict(amounts) for name, amounts in usage.items()}
        self._memo: dict[tuple[str, Node, FlavorResource], int] = {}

    # --- the tree ---

    def path(self, node: Node) -> list[Node] | None:
        """*node* and its ancestors up to the root; None if the way up runs in a circle."""
        found = [node]
        while found[-1] in self.parents:
            above = self.parents[found[-1]]
            if above in found:
                return None
            found.append(above)
        return found

    def root(self, queue: str) -> Node | None:
        """The root above a cluster queue, None if there is none."""
        path = self.path(Node("cq", queue))
        return path[-1] if path else None

    def frs(self) -> set[FlavorResource]:
        """Every flavor-resource that is owned or used anywhere."""
        owned = {fr for quotas in self.quotas.values() for fr in quotas}
        return owned | {fr for used in self.used.values() for fr in used}

    # --- the formulas: S, L, U, A ---

    def subtree(self, node: Node, fr: FlavorResource) -> int:
        """S: what the node and its children bring."""
        key = ("S", node, fr)
        if key not in self._memo:
            own = self.quotas.get(node, {}).get(fr, NONE).nominal
            below = self.children.get(node, [])
            self._memo[key] = own + sum(self.subtree(child, fr) - self.local(child, fr) for child in below)
        return self._memo[key]

    def local(self, node: Node, fr: FlavorResource) -> int:
        """L: what it keeps back from its parent."""
        lends = self.quotas.get(node, {}).get(fr, NONE).lending_limit
        if lends is None or node not in self.parents:
            return 0
        return max(0, self.subtree(node, fr) - lends)

    def usage(self, node: Node, fr: FlavorResource) -> int:
        """U: what its workloads hold, less what its children cover with what they keep back."""
        if node.kind == "cq":
            return self.used.get(node, {}).get(fr, 0)
        key = ("U", node, fr)
        if key not in self._memo:
            below = self.children.get(node, [])
            self._memo[key] = sum(max(0, self.usage(child, fr) - self.local(child, fr)) for child in below)
        return self._memo[key]

    def available(self, node: Node, fr: FlavorResource) -> int:
        """A: how much more it may use; negative while an ancestor is over-admitted."""
        subtree, local, usage = self.subtree(node, fr), self.local(node, fr), self.usage(node, fr)
        if node not in self.parents:
            return subtree - usage
        above = self.available(self.parents[node], fr)
        limit = self.quotas.get(node, {}).get(fr, NONE).borrowing_limit
        if limit is not None:
            above = min(above, subtree - local - max(0, usage - local) + limit)
        return max(0, local - usage) + above

    def excess(self) -> dict[tuple[Node, FlavorResource], int]:
        """By how much usage exceeds what is allowed, where it does. Trees with a circle are left out."""
        found = {}
        for node in self.quotas:
            if self.path(node) is None:
                continue
            for fr in self.frs():
                over = self._over(node, fr)
                if over > 0:
                    found[node, fr] = over
        return found

    def _over(self, node: Node, fr: FlavorResource) -> int:
        subtree, local, usage = self.subtree(node, fr), self.local(node, fr), self.usage(node, fr)
        if node not in self.parents:
            return usage - subtree
        limit = self.quotas.get(node, {}).get(fr, NONE).borrowing_limit
        return 0 if limit is None else max(0, usage - local) - (subtree - local) - limit

    def fits(self, queue: str, amounts: Usage) -> bool:
        """Whether the cluster queue may use that much more."""
        node = Node("cq", queue)
        if node not in self.quotas or self.path(node) is None:
            return False
        return all(amount <= max(0, self.available(node, fr)) for fr, amount in amounts.items() if amount > 0)

    def charged(self, queue: str, amounts: Usage) -> "PlainQuota":
        """The same tree with that much more in use."""
        other = PlainQuota((), (), {})
        other.queues, other.quotas, other.parents, other.children = (
            self.queues,
            self.quotas,
            self.parents,
            self.children,
        )
        other.used = {node: dict(used) for node, used in self.used.items()}
        mine = other.used.setdefault(Node("cq", queue), {})
        for fr, amount in amounts.items():
            mine[fr] = mine.get(fr, 0) + amount
        return other


# --- which flavors a workload could use ---


def active(queue: ClusterQueue, flavors: Mapping[FlavorName, ResourceFlavor]) -> bool:
    """Whether the cluster queue admits at all, its tree aside."""
    known = all(quotas.flavor in flavors for group in queue.resource_groups for quotas in group.flavors)
    return queue.stop_policy == StopPolicy.NONE and known and not queue.misconfigured and not queue.deleting


def choices(
    queue: ClusterQueue, pod_sets: Iterable[PodSet], flavors: Mapping[FlavorName, ResourceFlavor]
) -> Iterator[dict[FlavorResource, int]]:
    """Every way to serve the pod sets from the flavors of *queue*, as amounts."""
    open_ways: list[list[dict[FlavorResource, int]]] = []
    for pod_set in pod_sets:
        wanted = {resource: amount for resource, amount in pod_set.requests if amount > 0}
        covered = {resource for group in queue.resource_groups for resource in group.covered}
        if not set(wanted) <= covered:
            return
        for group in queue.resource_groups:
            asked = {resource: wanted[resource] for resource in group.covered if resource in wanted}
            if not asked:
                continue
            open_ways.append(
                [
                    {FlavorResource(quotas.flavor, resource): n * pod_set.count for resource, n in asked.items()}
                    for quotas in group.flavors
                    if _suits(pod_set, flavors[quotas.flavor])
                ]
            )
    for way in product(*open_ways):
        total: dict[FlavorResource, int] = {}
        for part in way:
            for fr, amount in part.items():
                total[fr] = total.get(fr, 0) + amount
        yield total


def _suits(pod_set: PodSet, flavor: ResourceFlavor) -> bool:
    """Selectors count as far as the flavor names their keys; taints must be tolerated by the pod or by the flavor."""
    labels = dict(flavor.node_labels)
    chosen = all(labels[key] == value for key, value in pod_set.node_selector if key in labels)
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    return chosen and all(any(_tolerates(t, taint) for t in tolerations) for taint in flavor.node_taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    return toleration.key == taint.key and (toleration.operator == "Exists" or toleration.value == taint.value)


def queue_usage(amounts: Iterable[tuple[ResourceName, FlavorName, int]]) -> dict[FlavorResource, int]:
    """Amounts per flavor-resource, summed up."""
    total: dict[FlavorResource, int] = {}
    for resource, flavor, amount in amounts:
        fr = FlavorResource(flavor, resource)
        total[fr] = total.get(fr, 0) + amount
    return total


def sum_by_queue(holdings: Iterable[tuple[ClusterQueueName, Usage]]) -> dict[str, dict[FlavorResource, int]]:
    """Usage per cluster queue of many holdings."""
    total: dict[str, dict[FlavorResource, int]] = {}
    for queue, amounts in holdings:
        mine = total.setdefault(queue, {})
        for fr, amount in amounts.items():
            mine[fr] = mine.get(fr, 0) + amount
    return total
