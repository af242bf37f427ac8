"""A fake API server: the only truth of a story. Objects with resource versions, guarded writes, watch streams.

Objects are the frozen records of the model, so a story spends no time on JSON. What the real server would refuse is
refused here with the same status: 404 for an object that is gone or another one of the same name, 409 for a resource
version that has moved on.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from extender.model.effects import AdoptPod, EvictPod, SetPodCondition, UngatePod
from extender.model.events import (
    ClusterQueueGone,
    ClusterQueueSeen,
    CohortGone,
    CohortSeen,
    Event,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PriorityClassGone,
    PriorityClassSeen,
)
from extender.model.names import Namespace, PodUid
from extender.model.pods import GATE, Pod
from extender.model.quota import LocalQueue

SEEN: dict[str, Callable[..., Event]] = {
    "flavor": FlavorSeen,
    "cohort": CohortSeen,
    "queue": ClusterQueueSeen,
    "local": LocalQueueSeen,
    "node": NodeSeen,
    "pod": PodSeen,
    "class": lambda entry: PriorityClassSeen(*entry),
    "namespace": lambda name: NamespaceSeen(Namespace(name), ()),
}
GONE: dict[str, Callable[..., Event]] = {
    "flavor": FlavorGone,
    "cohort": CohortGone,
    "queue": ClusterQueueGone,
    "local": LocalQueueGone,
    "node": NodeGone,
    "pod": PodGone,
    "class": PriorityClassGone,
    "namespace": NamespaceGone,
}
KINDS = tuple(SEEN)
CONFIG = ("flavor", "cohort", "queue", "local", "class", "namespace")


class Refused(Exception):
    """The server said no; ``status`` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Stream:
    """One watch of one kind: what was delivered, and what is on its way. ``broken``: it must be listed again."""

    def __init__(self, seen: dict[object, object]) -> None:
        self.seen = seen
        self.coming: deque[tuple[object, object | None]] = deque()
        self.broken = False


class Api:
    """All objects, by kind and key.

    ``touched`` counts changes of quota objects; ``doomed`` maps a terminating pod to when its grace ends.
    ``finished``: see ``keep_finished``.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[object, object]] = {kind: {} for kind in KINDS}
        self.pods: dict[PodUid, Pod] = {}
        self.finished: dict[PodUid, Pod] = {}
        self.doomed: dict[PodUid, int] = {}
        self.streams: list[dict[str, Stream]] = []
        self.touched = 0
        self._version = 100

    # --- watches ---

    def watch(self) -> dict[str, Stream]:
        """List everything, and begin to watch it."""
        streams = {kind: Stream(dict(objects)) for kind, objects in self.objects.items()}
        self.streams.append(streams)
        return streams

    def unwatch(self, streams: dict[str, Stream]) -> None:
        """A watcher is gone."""
        self.streams = [others for others in self.streams if others is not streams]

    def relist(self, stream: Stream, kind: str) -> list[tuple[object, object | None]]:
        """What a new list shows compared with what was delivered, as changes."""
        now = self.objects[kind]
        gone: list[tuple[object, object | None]] = [(key, None) for key in stream.seen if key not in now]
        stream.coming.clear()
        stream.broken = False
        return [*gone, *now.items()]

    def _tell(self, kind: str, key: object, record: object | None) -> None:
        objects = self.objects[kind]
        if record is None:
            if key not in objects:
                return
            del objects[key]
        else:
            objects[key] = record
        for streams in self.streams:
            if not streams[kind].broken:
                streams[kind].coming.append((key, record))

    # --- objects of administrators ---

    def put(self, kind: str, key: object, record: object) -> None:
        """Create or replace an object."""
        self.touched += kind in CONFIG
        self._tell(kind, key, record)

    def delete(self, kind: str, key: object) -> None:
        """Delete an object."""
        self.touched += kind in CONFIG
        self._tell(kind, key, None)

    def locals(self) -> list[LocalQueue]:
        """All LocalQueues."""
        return [queue for queue in self.objects["local"].values() if isinstance(queue, LocalQueue)]

    # --- pods ---

    def members(self) -> list[Pod]:
        """All pods, and the members of living groups that succeeded and were cleaned away."""
        return [*self.pods.values(), *self.finished.values()]

    def store(self, pod: Pod) -> Pod:
        """Write a pod in whatever state, as its owner, the kubelet or the scheduler does."""
        self._version += 1
        pod = msgspec.structs.replace(pod, resource_version=str(self._version))
        self.pods[pod.uid] = pod
        self._tell("pod", pod.uid, pod)
        return pod

    def change(self, pod: Pod, **changes: object) -> Pod:
        """Write some fields of a pod."""
        return self.store(msgspec.structs.replace(pod, **changes))

    def remove(self, uid: PodUid) -> None:
        """The pod object is gone."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            keep_finished(self.finished, pod, self.pods.values())
        self.doomed.pop(uid, None)
        self._tell("pod", uid, None)

    def delete_pod(self, uid: PodUid, *, gone_at_ms: int) -> None:
        """Ask a pod to go: at once without a node, else when its grace ends."""
        pod = self.pods.get(uid)
        if pod is None or pod.deleting:
            return
        if pod.node is None or pod.ended:
            self.remove(uid)
            return
        self.doomed[uid] = gone_at_ms
        self.change(pod, deleting=True)

    # --- writes of the extender ---

    def _guarded(self, uid: PodUid, version: str | None) -> Pod:
        pod = self.pods.get(uid)
        if pod is None:
            raise Refused(404, "no such pod")
        if version is not None and pod.resource_version != version:
            raise Refused(409, "the object has been modified")
        return pod

    def ungate(self, write: UngatePod) -> None:
        """PATCH: gate away, admission on. Raises: Refused."""
        pod = self._guarded(write.uid, write.resource_version)
        self.change(
            pod,
            gates=tuple(gate for gate in pod.gates if gate != GATE),
            admission=write.admission,
            node_selector=tuple(sorted({**dict(pod.node_selector), **dict(write.node_selector)}.items())),
            tolerations=pod.tolerations if write.tolerations is None else write.tolerations,
        )

    def adopt(self, write: AdoptPod) -> None:
        """PATCH: label and adopted annotation. Raises: Refused."""
        self.change(self._guarded(write.uid, write.resource_version), managed=True, adopted=True)

    def condition(self, write: SetPodCondition) -> None:
        """PATCH of the status, guarded by uid alone. Raises: Refused."""
        self.change(self._guarded(write.uid, None), admitted_condition=write.message)

    def evict(self, write: EvictPod, *, gone_at_ms: int) -> None:
        """Eviction, guarded by uid. Raises: Refused."""
        self.delete_pod(self._guarded(write.uid, None).uid, gone_at_ms=gone_at_ms)

    def carries(self, write: UngatePod) -> bool:
        """GET: whether the pod shows what *write* wanted."""
        pod = self.pods.get(write.uid)
        return pod is not None and pod.admission == write.admission


def keep_finished(finished: dict[PodUid, Pod], gone: Pod, left: Iterable[Pod]) -> None:
    """Remember a member of a group that succeeded and was cleaned away, as long as other members are there."""
    if gone.group and gone.phase == "Succeeded":
        finished[gone.uid] = gone
    groups = {pod.group for pod in left}
    for uid in [uid for uid, pod in finished.items() if pod.group not in groups]:
        del finished[uid]


def written_for(pod: Pod) -> dict[str, Any] | None:
    """The admission on a pod as plain JSON; None if there is none, or it was written for another pod."""
    if pod.admission is None:
        return None
    written: dict[str, Any] = json.loads(pod.admission)
    return written if written["pod"] == pod.uid else None
