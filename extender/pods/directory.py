"""What pods refer to: queues, flavors, priority classes, PodGroups and StatefulSets, by name.

Beside the engine, which has the quota objects for its own purpose: here only is looked up what a pod's words mean.
"""

from collections.abc import Iterable

import msgspec

from extender.model.events import (
    ClusterQueueGone,
    ClusterQueueSeen,
    Event,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    PodGroupGone,
    PodGroupSeen,
    PriorityClassGone,
    PriorityClassSeen,
    StatefulSetGone,
    StatefulSetSeen,
)
from extender.model.names import ClusterQueueName, FlavorName, LocalQueueKey, Namespace
from extender.model.pods import Pod
from extender.model.quota import ClusterQueue, LocalQueue, ResourceFlavor
from extender.pods.intake import DEFAULT_QUEUE

POD_GROUP_PREFIX = "podgroup/"
"""Before the name of a PodGroup, so that it is never taken for a group of that name by annotation."""


class Directory:
    """All of it. ``classes`` are priority classes with their values, ``sets`` the StatefulSets by UID."""

    def __init__(self) -> None:
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.cluster_queues: dict[ClusterQueueName, ClusterQueue] = {}
        self.local_queues: dict[LocalQueueKey, LocalQueue] = {}
        self.classes: dict[str, int] = {}
        self.sets: dict[str, StatefulSetSeen] = {}
        self._pod_groups: dict[tuple[Namespace, str], int] = {}

    def note(self, event: Event) -> None:
        """Take a fact; one that is not about these things is nobody's."""
        match event:
            case FlavorSeen(flavor):
                self.flavors[flavor.name] = flavor
            case FlavorGone(name):
                self.flavors.pop(name, None)
            case ClusterQueueSeen(cluster_queue):
                self.cluster_queues[cluster_queue.name] = cluster_queue
            case ClusterQueueGone(name):
                self.cluster_queues.pop(name, None)
            case LocalQueueSeen(queue):
                self.local_queues[LocalQueueKey(queue.namespace, queue.name)] = queue
            case LocalQueueGone(key):
                self.local_queues.pop(key, None)
            case PriorityClassSeen(name, value):
                self.classes[name] = value
            case PriorityClassGone(name):
                self.classes.pop(name, None)
            case _:
                self._note_owner(event)

    def _note_owner(self, event: Event) -> None:
        match event:
            case PodGroupSeen(namespace, name, count):
                self._pod_groups[namespace, name] = count
            case PodGroupGone(namespace, name):
                self._pod_groups.pop((namespace, name), None)
            case StatefulSetSeen(uid):
                self.sets[uid] = event
            case StatefulSetGone(uid):
                self.sets.pop(uid, None)
            case _:
                pass

    def has_default_queue(self, namespace: str) -> bool:
        """Whether the namespace has a LocalQueue that serves pods which name none."""
        return LocalQueueKey(Namespace(namespace), DEFAULT_QUEUE) in self.local_queues

    def cluster_queue_of(self, key: LocalQueueKey) -> ClusterQueue | None:
        """The ClusterQueue behind a LocalQueue, None if either is not known."""
        local_queue = self.local_queues.get(key)
        return None if local_queue is None else self.cluster_queues.get(local_queue.cluster_queue)

    def flavors_named(self, names: Iterable[FlavorName]) -> list[ResourceFlavor]:
        """The flavors of *names*, each once, in order; those that do not exist are left out."""
        return [self.flavors[name] for name in dict.fromkeys(names) if name in self.flavors]

    def grouped(self, pod: Pod) -> Pod:
        """The pod as a member of its PodGroup, if it names one and no group by annotation.

        The gang's minCount is the size of the group. A PodGroup that is no gang leaves its pods to themselves.
        """
        if not pod.pod_group or pod.group:
            return pod
        count = self._pod_groups.get((pod.namespace, pod.pod_group))
        if count == 0:
            return pod
        problem = pod.problem
        if count is None and not problem:
            problem = f"PodGroup {pod.pod_group} does not exist; create it, or the pod without spec.schedulingGroup"
        group = POD_GROUP_PREFIX + pod.pod_group
        return msgspec.structs.replace(pod, group=group, group_total=count or 0, problem=problem)
