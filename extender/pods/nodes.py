"""Nodes by name, the sets of them that carry given labels, and what managed pods take from each.

Sets are remembered per selector, and amounts per resource, as the questions about thousands of names need them: one
lookup a name. Both follow each node as it changes, so a node that joins costs the next question nothing.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from extender.model.names import NodeName, PodUid, ResourceName
from extender.model.pods import Node
from extender.model.quota import Labels

_SELECTORS_MAX = 1024

Requests = tuple[tuple[ResourceName, int], ...]


class Nodes:
    """All nodes, and the requests of the managed pods bound to each."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, Node] = {}
        self._by_selector: dict[Labels, set[str]] = {}
        self._total: dict[ResourceName, dict[str, int]] = {}
        self._used: dict[ResourceName, dict[str, int]] = {}
        self._pods: dict[PodUid, tuple[NodeName, Requests]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def put(self, node: Node) -> None:
        """Learn of *node*, or of its change."""
        old = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if old is None or old.labels != node.labels:
            labels = set(node.labels)
            for selector, names in self._by_selector.items():
                if labels.issuperset(selector):
                    names.add(node.name)
                else:
                    names.discard(node.name)
        if old is None or old.allocatable != node.allocatable:
            if old is not None:
                self._forget_amounts(old)
            for resource, amount in node.allocatable:
                self._total.setdefault(resource, {})[node.name] = amount

    def remove(self, name: NodeName) -> None:
        """Forget the node; what its pods took is kept until they are gone."""
        old = self._nodes.pop(name, None)
        if old is None:
            return
        self._forget_amounts(old)
        for names in self._by_selector.values():
            names.discard(name)

    def get(self, name: str) -> Node | None:
        """The node of that name, None if it is not known (our watch may lag)."""
        return self._nodes.get(NodeName(name))

    def _forget_amounts(self, node: Node) -> None:
        for resource, _ in node.allocatable:
            del self._total[resource][node.name]

    def with_labels(self, selector: Labels) -> AbstractSet[str]:
        """The names of all nodes that carry every label of *selector*, as of now; it follows later changes."""
        found = self._by_selector.get(selector)
        if found is None:
            wanted = set(selector)
            found = {node.name for node in self._nodes.values() if wanted <= set(node.labels)}
            if len(self._by_selector) >= _SELECTORS_MAX:
                self._by_selector.clear()
            self._by_selector[selector] = found
        return found

    def bind(self, pod: PodUid, node: NodeName, requests: Requests) -> None:
        """*pod* takes *requests* on *node* from now on; to say it twice changes nothing."""
        if self._pods.get(pod) == (node, requests):
            return
        self.unbind(pod)
        self._pods[pod] = (node, requests)
        for resource, amount in requests:
            used = self._used.setdefault(resource, {})
            used[node] = used.get(node, 0) + amount

    def unbind(self, pod: PodUid) -> None:
        """*pod* takes nothing any more."""
        node, requests = self._pods.pop(pod, (None, ()))
        if node is None:
            return
        for resource, amount in requests:
            used = self._used[resource]
            left = used.get(node, 0) - amount
            if left:
                used[node] = left
            else:
                used.pop(node, None)

    def total(self, resource: ResourceName) -> Mapping[str, int]:
        """What each node has of *resource* to give, in canonical units; nodes that have none may be missing."""
        return self._total.get(resource, {})

    def used(self, resource: ResourceName) -> Mapping[str, int]:
        """What managed pods take of *resource* on each node; nodes on which they take none are missing."""
        return self._used.get(resource, {})
