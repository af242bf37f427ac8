"""Nodes by name, the sets of them that carry given labels, and what managed pods take from each.

Sets are remembered per selector and thrown away when a node or its labels change, so a question about 5,000 names is
one set lookup a name.
"""

from extender.model.names import NodeName, PodUid, ResourceName
from extender.model.pods import Node
from extender.model.quota import Labels

_SELECTORS_MAX = 1024

Requests = tuple[tuple[ResourceName, int], ...]


class Nodes:
    """All nodes, and the requests of the managed pods bound to each."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, Node] = {}
        self._by_selector: dict[Labels, frozenset[str]] = {}
        self._used: dict[NodeName, dict[ResourceName, int]] = {}
        self._pods: dict[PodUid, tuple[NodeName, Requests]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def put(self, node: Node) -> None:
        """Learn of *node*, or of its change."""
        old = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if old is None or old.labels != node.labels:
            self._by_selector.clear()

    def remove(self, name: NodeName) -> None:
        """Forget the node; what its pods took is kept until they are gone."""
        if self._nodes.pop(name, None) is not None:
            self._by_selector.clear()

    def get(self, name: str) -> Node | None:
        """The node of that name, None if it is not known (our watch may lag)."""
        return self._nodes.get(NodeName(name))

    def with_labels(self, selector: Labels) -> frozenset[str]:
        """The names of all nodes that carry every label of *selector*."""
        found = self._by_selector.get(selector)
        if found is None:
            wanted = set(selector)
            found = frozenset(node.name for node in self._nodes.values() if wanted <= set(node.labels))
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
        used = self._used.setdefault(node, {})
        for resource, amount in requests:
            used[resource] = used.get(resource, 0) + amount

    def unbind(self, pod: PodUid) -> None:
        """*pod* takes nothing any more."""
        node, requests = self._pods.pop(pod, (None, ()))
        if node is None:
            return
        used = self._used[node]
        for resource, amount in requests:
            used[resource] -= amount
        if not any(used.values()):
            del self._used[node]

    def free(self, name: NodeName, resource: ResourceName) -> int:
        """What managed pods leave of *resource* on the node, in canonical units; 0 if the node is not known."""
        node = self._nodes.get(name)
        if node is None:
            return 0
        return dict(node.allocatable).get(resource, 0) - self._used.get(name, {}).get(resource, 0)
