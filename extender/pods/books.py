"""The books: every managed pod, the workload it belongs to, and what an engine's decision means on it.

Facts about pods go in and facts about workloads come out, only when something that the engine reads has changed: a
status heartbeat costs a dictionary lookup. Which workload a pod belongs to is decided here and nowhere else.
"""

from collections.abc import Iterable

from extender.model.effects import Admit, AdoptPod, Evict, EvictPod, PodEffect, SetPodCondition, UngatePod
from extender.model.events import (
    AdmissionRefused,
    EngineEvent,
    Event,
    EvictionRefused,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PriorityClassGone,
    PriorityClassSeen,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import FlavorName, Namespace, PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.quota import Labels, ResourceFlavor, Toleration
from extender.model.reasons import Reason
from extender.model.workload import Admission, PodSetAssignment, Workload
from extender.pods.admission import write_admission
from extender.pods.gangs import Gang, gang_workload, gather, group_uid, role_of
from extender.pods.intake import DEFAULT_QUEUE, MAIN, single_workload
from extender.pods.nodes import Nodes

CONFLICT = "conflict"
"""How the cause of a refused write begins when somebody else changed the pod."""


class Books:
    """What is known of pods, nodes, flavors and priority classes."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self._pods: dict[PodUid, Pod] = {}
        self._members: dict[WorkloadUid, dict[PodUid, Pod]] = {}
        self._unfinished: set[WorkloadUid] = set()
        self._stopped: set[WorkloadUid] = set()
        self._told: dict[WorkloadUid, Workload] = {}
        self._classes: dict[str, int] = {}
        self._default_queues: set[Namespace] = set()
        self._assumed: dict[PodUid, str] = {}
        self._outdated: dict[PodUid, tuple[UngatePod, str]] = {}
        self._strays: dict[PodUid, Pod] = {}

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
        return namespace in self._default_queues

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
                return self._pod_gone(uid)
            case NodeSeen(node):
                self.nodes.put(node)
                return []
            case NodeGone(name):
                self.nodes.remove(name)
                return []
            case PriorityClassSeen(name, value):
                self._classes[name] = value
                return self._retell(name)
            case PriorityClassGone(name):
                self._classes.pop(name, None)
                return self._retell(name)
            case _:
                self._note(event)
                return [event]

    def _note(self, event: EngineEvent) -> None:
        match event:
            case FlavorSeen(flavor):
                self.flavors[flavor.name] = flavor
            case FlavorGone(name):
                self.flavors.pop(name, None)
            case LocalQueueSeen(queue) if queue.name == DEFAULT_QUEUE:
                self._default_queues.add(queue.namespace)
            case LocalQueueGone(key) if key.name == DEFAULT_QUEUE:
                self._default_queues.discard(key.namespace)
            case _:
                pass

    def _pod_seen(self, pod: Pod) -> list[EngineEvent]:
        if not pod.managed or (pod.ended and not (pod.group and pod.phase == "Succeeded")):
            gone = self._pod_gone(pod.uid)
            if not pod.managed and self._is_ours(pod):
                self._strays[pod.uid] = pod
            return gone
        self._strays.pop(pod.uid, None)
        old = self._pods.get(pod.uid)
        left: list[EngineEvent] = []
        if old is not None and old.group != pod.group:
            left = self._pod_gone(pod.uid)
        self._pods[pod.uid] = pod
        if pod.admission is not None and pod.admission == self._assumed.get(pod.uid):
            del self._assumed[pod.uid]
        left += self._catch_up(pod)
        if pod.ended:
            self.nodes.unbind(pod.uid)
        elif pod.node is not None:
            self.nodes.bind(pod.uid, pod.node, pod.requests)
        if not pod.group:
            return [*left, *self._tell(single_workload(pod, self._classes))]
        self._members.setdefault(group_uid(pod), {})[pod.uid] = pod
        return [*left, *self._tell_gang(group_uid(pod))]

    def _pod_gone(self, uid: PodUid) -> list[EngineEvent]:
        self._strays.pop(uid, None)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return []
        self.nodes.unbind(uid)
        self._assumed.pop(uid, None)
        self._outdated.pop(uid, None)
        if not pod.group:
            return self._end(WorkloadUid(uid))
        if pod.phase != "Succeeded":  # a member that has succeeded stays so when its object is cleaned away
            del self._members[group_uid(pod)][uid]
        return self._tell_gang(group_uid(pod))

    def _tell_gang(self, uid: WorkloadUid) -> list[EngineEvent]:
        members = self._members[uid]
        if not any(member in self._pods for member in members):
            del self._members[uid]
            return self._end(uid)
        gang = self._gang(uid)
        if gang.given is None:
            self._stopped.discard(uid)
        elif gang.unfinished():
            self._unfinished.add(uid)
        return self._end(uid) if gang.over else self._tell(gang_workload(gang, self._classes))

    def _gang(self, uid: WorkloadUid) -> Gang:
        told = self._told.get(uid)
        held = told is not None and told.admission is not None
        return gather(self._members[uid].values(), writing=self._assumed, held=held)

    def _end(self, uid: WorkloadUid) -> list[EngineEvent]:
        self._unfinished.discard(uid)
        self._stopped.discard(uid)
        return [WorkloadGone(uid)] if self._told.pop(uid, None) is not None else []

    def _tell(self, workload: Workload) -> list[EngineEvent]:
        if self._told.get(workload.uid) == workload:
            return []
        self._told[workload.uid] = workload
        return [WorkloadSeen(workload)]

    def _retell(self, priority_class: str) -> list[EngineEvent]:
        told: list[EngineEvent] = []
        for pod in [pod for pod in self._pods.values() if pod.priority_class == priority_class]:
            told += self._pod_seen(pod)
        return told

    # --- decisions ---

    def admit(self, admit: Admit) -> list[PodEffect]:
        """The writes that make an admission true: one per gated pod, as many of each pod set as were admitted."""
        given = {assignment.name: assignment for assignment in admit.admission.assignments}
        writes: list[PodEffect] = []
        taken: dict[str, int] = {}
        for pod in self.pods_of(admit.uid):
            name = role_of(pod) if pod.group else MAIN
            if pod.admission is None and not pod.deleting and taken.get(name, 0) < given[name].count:
                taken[name] = taken.get(name, 0) + 1
                writes.append(self._ungate(pod, admit.uid, admit.admission, given[name]))
        return writes

    def finish(self) -> list[PodEffect]:
        """The writes that complete groups which are admitted in part: a write was lost, or a pod was replaced."""
        writes: list[PodEffect] = []
        for uid in sorted(self._unfinished - self._stopped):
            gang = self._gang(uid)
            for pod, given in gang.unfinished():
                busy = pod.uid in self._assumed or pod.uid in self._outdated
                if not busy and gang.given is not None:
                    writes.append(self._ungate(pod, uid, gang.given, given))
        self._unfinished.clear()
        return writes

    def _ungate(self, pod: Pod, workload: WorkloadUid, admission: Admission, assignment: PodSetAssignment) -> UngatePod:
        text = write_admission(pod.uid, assignment.name, admission)
        self._assumed[pod.uid] = text
        flavors = self.flavors_of(assignment)
        return UngatePod(
            workload=workload,
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            resource_version=pod.resource_version,
            admission=text,
            # An ungated pod may not get a nodeSelector any more; filter alone keeps it on its flavor's nodes.
            node_selector=labels_of(flavors) if pod.gated else (),
            tolerations=_with_tolerations(pod.tolerations, flavors),
        )

    def flavors_of(self, assignment: PodSetAssignment) -> list[ResourceFlavor]:
        """The flavors of *assignment*, each once, in order; one that was deleted meanwhile restricts nothing."""
        names = dict.fromkeys(name for _, name in assignment.flavors)
        return [self.flavors[name] for name in names if name in self.flavors]

    def refuse(self, write: UngatePod, cause: str) -> list[EngineEvent]:
        """The write was not carried out. A group of which any pod is admitted stays so and is finished later.

        Somebody changed the pod since we saw it: the same write would fail again, so its charge is kept until the
        watch shows the change.
        """
        self._assumed.pop(write.uid, None)
        pod = self._pods.get(write.uid)
        if pod is not None and cause.startswith(CONFLICT) and pod.resource_version == write.resource_version:
            self._outdated[write.uid] = (write, cause)
            return []
        return self._give_back(write, cause)

    def _give_back(self, write: UngatePod, cause: str) -> list[EngineEvent]:
        told = self._told.get(write.workload)
        if told is not None and told.admission is not None and write.workload in self._members:
            self._unfinished.add(write.workload)
            return self._tell_gang(write.workload)
        others = [pod for pod in self.pods_of(write.workload) if pod.uid != write.uid]
        if any(pod.admission is not None or pod.uid in self._assumed for pod in others):
            self._unfinished.add(write.workload)
            return []
        return [AdmissionRefused(write.workload, cause)]

    def _catch_up(self, pod: Pod) -> list[EngineEvent]:
        outdated = self._outdated.get(pod.uid)
        if outdated is None or outdated[0].resource_version == pod.resource_version:
            return []
        del self._outdated[pod.uid]
        return self._give_back(*outdated)

    def refuse_eviction(self, write: EvictPod, cause: str) -> list[EngineEvent]:
        """A pod stays that was told to go, so its group goes on until it is told again."""
        if write.workload in self._stopped:
            self._stopped.discard(write.workload)
            self._unfinished.add(write.workload)
        return [EvictionRefused(write.workload, cause)]

    def evict(self, evict: Evict) -> list[PodEffect]:
        """The writes that stop a workload: one eviction per pod that is not leaving already.

        A group that was told to stop is not finished any more, or its replacements would keep it running for ever.
        """
        if evict.uid in self._members:
            self._stopped.add(evict.uid)
        return [
            EvictPod(evict.uid, pod.uid, pod.namespace, pod.name, evict.reason, evict.message)
            for pod in self.pods_of(evict.uid)
            if not pod.deleting and (not pod.gated or pod.uid in self._assumed)
        ]

    def adoptions(self) -> list[PodEffect]:
        """The writes that take in pods which arrived without us: they name a queue but carry no label of ours.

        Each is answered once; the watches bring it back if the write fails.
        """
        found = list(self._strays.values())
        self._strays.clear()
        return [AdoptPod(pod.uid, pod.namespace, pod.name, pod.resource_version) for pod in found]

    def _is_ours(self, pod: Pod) -> bool:
        of_daemon_set = pod.owner is not None and pod.owner.kind == "DaemonSet"
        return bool(pod.queue) and pod.node is None and not (pod.ended or of_daemon_set)

    def condition(self, workload: WorkloadUid, why: Reason | None) -> list[PodEffect]:
        """The writes that say why a workload waits; *why* None: it is admitted."""
        status, code, message = (
            (True, "Admitted", "quota is reserved") if why is None else (False, str(why.code), why.sentence())
        )
        return [
            SetPodCondition(pod.uid, pod.namespace, pod.name, status, code, message) for pod in self.pods_of(workload)
        ]


def labels_of(flavors: Iterable[ResourceFlavor]) -> Labels:
    """The node labels of all *flavors* together, sorted."""
    return tuple(sorted({pair for flavor in flavors for pair in flavor.node_labels}))


def _with_tolerations(existing: tuple[Toleration, ...], flavors: list[ResourceFlavor]) -> tuple[Toleration, ...] | None:
    added = [toleration for flavor in flavors for toleration in flavor.tolerations if toleration not in existing]
    return (*existing, *dict.fromkeys(added)) if added else None
