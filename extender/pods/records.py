"""The facts side of the books: every pod that concerns us, the workload it belongs to, and what is told about it.

Which workload a pod belongs to is decided here and nowhere else. Facts come in any order; a workload is told again only
when something that the engine reads has changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import msgspec

from extender.model.effects import UngatePod
from extender.model.events import (
    AdmissionRefused,
    ClusterQueueGone,
    ClusterQueueSeen,
    EngineEvent,
    Event,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodSeen,
    PriorityClassGone,
    PriorityClassSeen,
    StatefulSetGone,
    StatefulSetSeen,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import FlavorName, LocalQueueKey, Namespace, PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.quota import ClusterQueue, ResourceFlavor
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import Workload
from extender.pods.admission import read_admission
from extender.pods.directory import Directory
from extender.pods.gangs import Gang, gang_workload, gather, group_uid, remarks, role_of
from extender.pods.holds import Holds
from extender.pods.intake import MAIN, queue_of, single_workload
from extender.pods.nodes import Nodes
from extender.pods.referrers import Referent, Referrers, owner, pod_group, priority_class
from extender.pods.running import Found, found_running, runs_without_admission

NEVER_OURS = frozenset({Namespace("kube-system")})
"""Namespaces whose pods are never touched, whatever they name; our own comes to it."""
ADMITTED = "Admitted"
"""The reason of our condition while its status is True."""


class Records(ABC):
    """What is known of pods, and what the engine was told of their workloads.

    Three lists are for the driver to take: ``moved`` are workloads about which the clock may have a word, ``remarked``
    pods with a reason of their own (None: none any more), ``stale`` admitted pods whose condition still says otherwise.
    """

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.directory = Directory()
        self.holds = Holds()
        self.moved: dict[WorkloadUid, None] = {}
        self.remarked: dict[PodUid, Reason | None] = {}
        self.stale: dict[PodUid, None] = {}
        self._excluded = NEVER_OURS
        self._batch: dict[WorkloadUid, None] | None = None
        self._pods: dict[PodUid, Pod] = {}
        self._referrers = Referrers()
        self._native: dict[PodUid, Pod] = {}
        self._members: dict[WorkloadUid, dict[PodUid, Pod]] = {}
        self._unfinished: set[WorkloadUid] = set()
        self._stopped: set[WorkloadUid] = set()
        self._admitting: set[WorkloadUid] = set()
        self._stopping: set[WorkloadUid] = set()
        self._told: dict[WorkloadUid, Workload] = {}
        self._remarks: dict[WorkloadUid, dict[PodUid, Reason]] = {}
        self._assumed: dict[PodUid, str] = {}
        self._outdated: dict[PodUid, tuple[UngatePod, str]] = {}
        self._strays: dict[PodUid, Pod] = {}
        self._adopting: dict[PodUid, Pod] = {}
        self._uncounted: dict[PodUid, None] = {}
        self._unsaid: Iterator[PodUid] = iter(())

    @property
    def flavors(self) -> dict[FlavorName, ResourceFlavor]:
        """The flavors by name."""
        return self.directory.flavors

    def pod(self, uid: str) -> Pod | None:
        """The live pod of that UID, None if there is none or it has ended."""
        return self._pods.get(PodUid(uid))

    def pods(self) -> Iterable[Pod]:
        """All live managed pods."""
        return self._pods.values()

    def pods_of(self, workload: WorkloadUid) -> list[Pod]:
        """The live pods of *workload*: one, or the members of a group that belong to it, oldest first."""
        members = self._members.get(workload)
        if members is not None:
            return list(self._gang(workload).chosen)
        pod = self._pods.get(PodUid(workload))
        return [pod] if pod else []

    def workload_of(self, pod: Pod) -> WorkloadUid:
        """The workload that *pod* belongs to: its group, or itself."""
        return group_uid(pod) if pod.group else WorkloadUid(pod.uid)

    def has_default_queue(self, namespace: str) -> bool:
        """Whether the namespace has a LocalQueue that serves pods which name none."""
        return self.directory.has_default_queue(namespace)

    def cluster_queue_of(self, queue: LocalQueueKey) -> ClusterQueue | None:
        """The ClusterQueue behind a LocalQueue, None if either is not known."""
        return self.directory.cluster_queue_of(queue)

    def assumed_admission(self, uid: PodUid) -> str | None:
        """The annotation that is being written to this pod, until the watch shows it or the write is refused."""
        return self._assumed.get(uid)

    # --- facts ---

    def apply(self, event: Event) -> list[EngineEvent]:
        """Take a fact; answer what it means to the engine. Facts about quota pass through."""
        match event:
            case PodSeen(pod):
                return self._pod_seen(pod)
            case PodGone(uid):
                self._native.pop(uid, None)
                return self._pod_gone(uid)
            case NodeSeen(node):
                self.nodes.put(node)
                return self._count_again()
            case NodeGone(name):
                self.nodes.remove(name)
                return []
            case PriorityClassSeen() | PriorityClassGone():
                self.directory.note(event)
                return self._see_again(priority_class(event.name))
            case PodGroupSeen(namespace, name) | PodGroupGone(namespace, name):
                self.directory.note(event)
                return self._see_again(pod_group(namespace, name))
            case StatefulSetSeen(uid) | StatefulSetGone(uid):
                self.directory.note(event)
                return self._see_again(owner(uid))
            case (
                FlavorSeen()
                | FlavorGone()
                | ClusterQueueSeen()
                | ClusterQueueGone()
                | LocalQueueSeen()
                | LocalQueueGone()
            ):
                self.directory.note(event)
                return [event, *self._count_again()]
            case _:
                return [event] if isinstance(event, EngineEvent) else []

    def exclude(self, namespace: Namespace) -> None:
        """Never touch pods of *namespace*, whatever they name."""
        self._excluded |= {namespace}

    def _see_again(self, referent: Referent) -> list[EngineEvent]:
        """Something that pods refer to has changed."""
        pods = [self._pods[uid] for uid in self._referrers.of(referent)]
        return [event for pod in pods for event in self._pod_seen(self._native.get(pod.uid, pod))]

    def _count_again(self) -> list[EngineEvent]:
        workloads = dict.fromkeys(self.workload_of(self._pods[uid]) for uid in self._uncounted)
        return [event for workload in workloads for event in self.tell_again(workload)]

    def _pod_seen(self, seen: Pod) -> list[EngineEvent]:
        if seen.namespace in self._excluded:
            return []
        pod = self._resolved(seen)
        self._adopting.pop(pod.uid, None)
        if pod.managed:
            self._strays.pop(pod.uid, None)
        if not self._belongs(pod):
            gone = self._pod_gone(pod.uid)
            if _is_stray(pod):
                self._strays[pod.uid] = pod
            return gone
        old = self._pods.get(pod.uid)
        left: list[EngineEvent] = []
        if old is not None and old.group != pod.group:
            left = self._pod_gone(pod.uid)
        self._referrers.replace(pod.uid, self._pods.get(pod.uid), pod)
        self._pods[pod.uid] = pod
        if pod.admission is not None and pod.admission == self._assumed.get(pod.uid):
            del self._assumed[pod.uid]
        self._note_words(pod, old)
        left += self._catch_up(pod)
        if pod.ended:
            self.nodes.unbind(pod.uid)
        elif pod.node is not None:
            self.nodes.bind(pod.uid, pod.node, pod.requests)
        if not pod.group:
            return [*left, *self._tell(self._single(pod))]
        self._members.setdefault(group_uid(pod), {})[pod.uid] = pod
        return [*left, *self._tell_gang(group_uid(pod))]

    def _resolved(self, seen: Pod) -> Pod:
        """The pod with its PodGroup looked up; as it was seen it is kept, since PodGroups come and go."""
        if not seen.pod_group:
            return seen
        self._native[seen.uid] = seen
        return self.directory.grouped(seen)

    def _belongs(self, pod: Pod) -> bool:
        """Whether it waits or uses quota: marked, or running with a queue name."""
        if pod.ended:
            return pod.managed and bool(pod.group) and pod.phase == "Succeeded"
        return pod.managed or (pod.node is not None and _is_stray(pod))

    def _note_words(self, pod: Pod, old: Pod | None) -> None:
        """What of the pod others have to know: that it runs uncounted, its readiness, a condition that is not true."""
        admitted = read_admission(pod.uid, pod.admission) is not None
        if runs_without_admission(pod) and not admitted:
            self._uncounted[pod.uid] = None
        else:
            self._uncounted.pop(pod.uid, None)
        self._note_stale(pod)
        if old is None or old.ready != pod.ready:
            self.moved[self.workload_of(pod)] = None

    def _note_stale(self, pod: Pod) -> None:
        if pod.admitted_reason in ("", ADMITTED) or pod.ended or read_admission(pod.uid, pod.admission) is None:
            return
        self.stale[pod.uid] = None

    @abstractmethod
    def _catch_up(self, pod: Pod) -> list[EngineEvent]:
        """What a write means that met a conflict, now that the pod is seen as it is."""

    def _pod_gone(self, uid: PodUid) -> list[EngineEvent]:
        self._strays.pop(uid, None)
        self._adopting.pop(uid, None)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return []
        self._referrers.replace(uid, pod, None)
        self.nodes.unbind(uid)
        for known in (self._assumed, self._outdated, self._uncounted, self.stale):
            known.pop(uid, None)
        if not pod.group:
            return self._end(WorkloadUid(uid))
        if pod.phase != "Succeeded":  # a member that has succeeded stays so when its object is cleaned away
            del self._members[group_uid(pod)][uid]
        return self._tell_gang(group_uid(pod))

    # --- workloads ---

    def tell_again(self, workload: WorkloadUid) -> list[EngineEvent]:
        """What is to be told of *workload*, if it has changed by something other than its pods."""
        if workload in self._members:
            return self._tell_gang(workload)
        pod = self._pods.get(PodUid(workload))
        return [] if pod is None or pod.group else self._tell(self._single(pod))

    def _single(self, pod: Pod) -> Workload:
        workload = single_workload(pod, self.directory.classes)
        if workload.admission is not None:
            return workload
        if runs_without_admission(pod):
            found = self._found([(MAIN, [pod])])
            return msgspec.structs.replace(
                workload,
                admission=found.admission,
                evicted=found.admission is not None and pod.deleting,
                held=None if found.admission else _uncounted(found),
            )
        return self._held_back(workload, pod)

    def _held_back(self, workload: Workload, first: Pod) -> Workload:
        why = workload.held or self.holds.of(workload.uid, first)
        return workload if why == workload.held else msgspec.structs.replace(workload, held=why)

    def _found(self, pod_sets: list[tuple[str, list[Pod]]]) -> Found:
        running = [pod for _, alike in pod_sets for pod in alike if pod.node is not None]
        return found_running(
            pod_sets,
            queue=self.directory.cluster_queue_of(queue_of(pod_sets[0][1][0])),
            flavors=self.directory.flavors,
            node_of={pod.uid: self.nodes.get(pod.node) for pod in running if pod.node is not None},
        )

    def begin(self) -> None:
        """Many facts are coming: each group is looked at once when all are in (``settle``), not at each of its pods."""
        self._batch = {}

    def settle(self) -> list[EngineEvent]:
        """All facts are in: what they mean to the engine beyond what ``apply`` has answered."""
        groups, self._batch = self._batch or {}, None
        return [event for uid in groups if uid in self._members for event in self._tell_gang(uid)]

    def _tell_gang(self, uid: WorkloadUid) -> list[EngineEvent]:
        if self._batch is not None:
            self._batch[uid] = None
            return []
        members = self._members[uid]
        if not any(member in self._pods for member in members):
            del self._members[uid]
            return self._end(uid)
        gang = self._gang(uid)
        self._remark(uid, remarks(gang))
        if gang.unfinished():
            self._unfinished.add(uid)
        if gang.given is None and not gang.writing:
            self._stopped.discard(uid)
        if gang.over:
            return self._end(uid)
        return [*self._admitted_and_over(gang), *self._tell(self._gang_workload(gang))]

    def _admitted_and_over(self, gang: Gang) -> list[EngineEvent]:
        """Give an admission back whose pods have started and ended before the watch showed any of them running.

        The engine would wait for its confirmation for ever.
        """
        if gang.given is None and (gang.writing or any(pod.uid in self._outdated for pod in gang.chosen)):
            return []
        pending = gang.uid in self._admitting
        self._admitting.discard(gang.uid)
        return (
            [AdmissionRefused(gang.uid, "all that was started of it has ended")] if pending and not gang.given else []
        )

    def _gang_workload(self, gang: Gang) -> Workload:
        workload = gang_workload(gang, self.directory.classes, self.directory.sets)
        return workload if workload.admission is not None else self._waiting(workload, gang)

    def _waiting(self, workload: Workload, gang: Gang) -> Workload:
        if any(runs_without_admission(pod) for pod in gang.chosen):
            return msgspec.structs.replace(workload, held=_uncounted(self._found(_by_role(gang))))
        return self._held_back(workload, gang.chosen[0])

    def _gang(self, uid: WorkloadUid) -> Gang:
        told = self._told.get(uid)
        held = told is not None and told.admission is not None
        gang = gather(self._members[uid].values(), writing=self._assumed, held=held)
        if gang.given is None and any(runs_without_admission(pod) for pod in gang.chosen):
            return msgspec.structs.replace(gang, given=self._found(_by_role(gang)).admission)
        return gang

    def _remark(self, uid: WorkloadUid, now: dict[PodUid, Reason]) -> None:
        before = self._remarks.get(uid, {})
        if before == now:
            return
        self.remarked.update({pod: None for pod in before if pod not in now})
        self.remarked.update({pod: why for pod, why in now.items() if before.get(pod) != why})
        if now:
            self._remarks[uid] = now
        else:
            del self._remarks[uid]

    def _end(self, uid: WorkloadUid) -> list[EngineEvent]:
        self._unfinished.discard(uid)
        self._stopped.discard(uid)
        self._admitting.discard(uid)
        self._stopping.discard(uid)
        if uid not in self._members:
            self._remark(uid, {})
        if self._told.pop(uid, None) is None:
            return []
        self.moved[uid] = None
        return [WorkloadGone(uid)]

    def _tell(self, workload: Workload) -> list[EngineEvent]:
        if workload.admission is None:
            self._stopping.discard(workload.uid)
        elif workload.uid in self._stopping and not workload.evicted:
            workload = msgspec.structs.replace(workload, evicted=True)
        if self._told.get(workload.uid) == workload:
            return []
        self._told[workload.uid] = workload
        self.moved[workload.uid] = None
        return [WorkloadSeen(workload)]


def _is_stray(pod: Pod) -> bool:
    """Whether the pod names a queue, carries no label of ours, and may be taken in."""
    of_every_node = pod.owner is not None and pod.owner.kind in ("DaemonSet", "Node")
    return bool(pod.queue) and not (pod.managed or pod.ended or of_every_node)


def _uncounted(found: Found) -> Reason:
    return reason(ReasonCode.UNCOUNTED, cause=found.cause)


def _by_role(gang: Gang) -> list[tuple[str, list[Pod]]]:
    roles: dict[str, list[Pod]] = {}
    for pod in gang.chosen:
        if not pod.deleting or pod.node is not None:
            roles.setdefault(role_of(pod), []).append(pod)
    return sorted(roles.items())
