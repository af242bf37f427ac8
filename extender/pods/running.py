"""What a pod uses that runs without an admission of ours: it is charged where it runs (ADR 0050).

Its flavors are read off its node: of each resource group the first flavor whose node labels the node carries. Amounts
are those of any admission. So what was there before us, or came while nobody could gate it, is never free.
"""

from collections.abc import Mapping, Sequence

import msgspec

from extender.model.amounts import times
from extender.model.names import PODS, FlavorName, ResourceName
from extender.model.pods import Node, Pod
from extender.model.quota import ClusterQueue, ResourceFlavor, ResourceGroup
from extender.model.workload import Admission, PodSetAssignment


class Found(msgspec.Struct, frozen=True):
    """What it uses (None: nothing that is counted), or why that cannot be said."""

    admission: Admission | None
    cause: str = ""


def runs_without_admission(pod: Pod) -> bool:
    """Whether the pod is bound and alive; asked of pods that carry no admission."""
    return pod.node is not None and not pod.ended


def found_running(
    pod_sets: Sequence[tuple[str, Sequence[Pod]]],
    *,
    queue: ClusterQueue | None,
    flavors: Mapping[FlavorName, ResourceFlavor],
    node_of: Mapping[str, Node | None],
) -> Found:
    """The admission of a workload of which at least one pod runs.

    *pod_sets* are its pods by the name of their pod set; *node_of* are the nodes of those that run. A pod set of which
    none runs is given the first flavor of each group.
    """
    if queue is None:
        return Found(None, "its queue does not exist")
    assignments = []
    for name, alike in pod_sets:
        placed = next((pod for pod in alike if runs_without_admission(pod)), None)
        node = node_of.get(placed.uid) if placed else None
        if placed is not None and node is None:
            return Found(None, f"node {placed.node} is not known")
        given = _assignment(name, alike, queue, flavors, node)
        if isinstance(given, str):
            return Found(None, given)
        assignments.append(given)
    at_ms = min(pod.created_ms for _, alike in pod_sets for pod in alike)
    return Found(Admission(queue.name, tuple(assignments), at_ms))


def _assignment(
    name: str,
    alike: Sequence[Pod],
    queue: ClusterQueue,
    flavors: Mapping[FlavorName, ResourceFlavor],
    node: Node | None,
) -> PodSetAssignment | str:
    requests = dict(alike[0].requests)
    if any(PODS in group.covered for group in queue.resource_groups):
        requests[PODS] = 1
    chosen: dict[ResourceName, FlavorName] = {}
    for group in queue.resource_groups:
        wanted = [resource for resource in group.covered if resource in requests]
        if not wanted:
            continue
        flavor = _flavor(group, flavors, node)
        if flavor is None:
            tried = ", ".join(one.flavor for one in group.flavors)
            return f"node {node.name if node else ''} is of none of the flavors {tried} of ClusterQueue {queue.name}"
        chosen.update(dict.fromkeys(wanted, flavor))
    if not chosen:
        return f"ClusterQueue {queue.name} has no quota for anything it requests"
    usage = tuple((resource, times(requests[resource], len(alike))) for resource in sorted(chosen))
    return PodSetAssignment(name, tuple(sorted(chosen.items())), usage, len(alike))


def _flavor(group: ResourceGroup, flavors: Mapping[FlavorName, ResourceFlavor], node: Node | None) -> FlavorName | None:
    labels = set(node.labels) if node else None
    for quotas in group.flavors:
        flavor = flavors.get(quotas.flavor)
        if flavor is not None and (labels is None or labels.issuperset(flavor.node_labels)):
            return flavor.name
    return None
