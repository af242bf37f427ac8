"""The books: every pod that concerns us, the workload it belongs to, and what an engine's decision means on it.

Facts about pods go in and facts about workloads come out, only when something that the engine reads has changed: a
status heartbeat costs a dictionary lookup (``records``). Decisions go in and writes to pods come out (here).
"""

from collections.abc import Iterable
from itertools import islice

from extender.model.effects import (
    Admit,
    AdoptPod,
    Evict,
    EvictionReason,
    EvictPod,
    PodEffect,
    SetPodCondition,
    UngatePod,
)
from extender.model.events import AdmissionRefused, EngineEvent, EvictionRefused
from extender.model.jobs import JobAct, SetJobCondition
from extender.model.names import PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.quota import Labels, ResourceFlavor, Toleration
from extender.model.reasons import Reason, ReasonCode
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.admission import write_admission
from extender.pods.holds import OWNER_PREFIX, Hold, lineage
from extender.pods.records import ADMITTED
from extender.pods.referrers import owner
from extender.pods.setbook import SetRecords
from extender.pods.timers import Clocked

CONFLICT = "conflict"
"""How the cause of a refused write begins when somebody else changed the pod."""


class Books(SetRecords):
    """What is known of pods, nodes, flavors and priority classes, and what to write."""

    def admit(self, admit: Admit) -> list[PodEffect]:
        """The writes that make an admission true: one per gated pod, as many of each pod set as were admitted."""
        given = {assignment.name: assignment for assignment in admit.admission.assignments}
        writes: list[PodEffect] = []
        taken: dict[str, int] = {}
        for pod in self.pods_of(admit.uid):
            name = self.pod_set_of(pod)
            if pod.admission is None and not pod.deleting and taken.get(name, 0) < given[name].count:
                taken[name] = taken.get(name, 0) + 1
                writes.append(self._ungate(pod, admit.uid, admit.admission, given[name]))
        if admit.uid in self._members:
            self._admitting.add(admit.uid)
        return writes

    def finish(self) -> list[PodEffect]:
        """The writes that complete groups which are admitted in part: a write was lost, or a pod was replaced."""
        writes: list[PodEffect] = [*self.restatements()]
        for uid in sorted(self._unfinished - self._stopped):
            gang = self._gang(uid)
            for pod, given in gang.unfinished():
                busy = pod.uid in self._assumed or pod.uid in self._outdated or pod.uid in self.holds
                if not busy and gang.given is not None:
                    writes.append(self._ungate(pod, uid, gang.given, given))
        self._unfinished.clear()
        return writes

    def _ungate(self, pod: Pod, workload: WorkloadUid, admission: Admission, assignment: PodSetAssignment) -> UngatePod:
        text = write_admission(pod.uid, assignment.name, admission)
        self._assumed[pod.uid] = text
        self._outdated.pop(pod.uid, None)
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
        return self.directory.flavors_named(name for _, name in assignment.flavors)

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
        if any(pod.admission is not None or pod.uid in self._assumed or pod.uid in self._outdated for pod in others):
            self._unfinished.add(write.workload)
            return []
        self._admitting.discard(write.workload)
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
        told: list[EngineEvent] = [EvictionRefused(write.workload, cause)]
        if write.workload in self._stopping:
            self._stopping.discard(write.workload)
            told += self.tell_again(write.workload)
        return told

    def refuse_job(self, write: JobAct | SetJobCondition, cause: str) -> list[EngineEvent]:
        """A write about a Job was not carried out: for the book of Jobs, where there is one."""
        return []

    def ask_again(self, job: str) -> list[EngineEvent]:
        """What was refused about a Job may be asked for again: for the book of Jobs, where there is one."""
        return []

    def evict(self, evict: Evict) -> list[PodEffect]:
        """The writes that stop a workload: one eviction per pod that is not leaving already.

        A group that was told to stop is not finished any more, or its replacements would keep it running for ever.
        """
        if evict.uid in self._stopping:
            return []  # told by the clock before
        if evict.uid in self._members:
            self._stopped.add(evict.uid)
        return [
            EvictPod(evict.uid, pod.uid, pod.namespace, pod.name, evict.reason, evict.message)
            for pod in self.pods_of(evict.uid)
            if not pod.deleting and (not pod.gated or pod.uid in self._assumed)
        ]

    def adoptions(self) -> list[PodEffect]:
        """The writes that take in pods which arrived without us: they name a queue but carry no label of ours.

        One that runs already is written what it uses; while that cannot be said it waits. Each is answered once;
        the watches bring it back if the write fails, or ``adopt_again``.
        """
        writes: list[PodEffect] = []
        for uid in list(self._uncounted):
            pod = self._pods[uid]
            admission = self.admission_of_told(self.workload_of(pod))
            if admission is not None:
                del self._uncounted[uid]
                self._strays.pop(uid, None)
                text = write_admission(uid, self.pod_set_of(pod), admission)
                writes.append(AdoptPod(uid, pod.namespace, pod.name, pod.resource_version, text))
        for uid, pod in list(self._strays.items()):
            if uid not in self._uncounted:
                del self._strays[uid]
                self._adopting[uid] = pod
                writes.append(AdoptPod(uid, pod.namespace, pod.name, pod.resource_version))
        return writes

    # --- time ---

    def hold(self, key: str, hold: Hold) -> list[EngineEvent]:
        """Hold back a workload, or what comes after a pod (``holds``)."""
        self.holds.put(key, hold)
        return self._tell_key(key)

    def release(self, key: str) -> list[EngineEvent]:
        """Hold it back no longer."""
        return self._tell_key(key) if self.holds.drop(key) else []

    def _tell_key(self, key: str) -> list[EngineEvent]:
        if key.startswith(OWNER_PREFIX):
            mine = [self._pods[uid] for uid in self._referrers.of(owner(key.removeprefix(OWNER_PREFIX)))]
            return [event for pod in mine for event in self.tell_again(self.workload_of(pod))]
        if key in self._pods and self._pods[PodUid(key)].group:
            self._unfinished.add(self.workload_of(self._pods[PodUid(key)]))
        return self.tell_again(WorkloadUid(key))

    def lineage_of(self, uid: WorkloadUid) -> str:
        """The key under which what comes after *uid* is known; empty if it has no pods."""
        pods = self.pods_of(uid)
        return lineage(uid, pods[0], whole=self.is_whole(uid)) if pods else ""

    def is_whole(self, uid: WorkloadUid) -> bool:
        """Whether *uid* comes back as itself: a group does, a pod is followed by another one."""
        return uid in self._members

    def stop(
        self, uid: WorkloadUid, why: EvictionReason, message: str, *, at_ms: int
    ) -> tuple[list[EngineEvent], list[PodEffect]]:
        """Time has come for an admitted workload: it is told to stop, and holds its quota until it is gone.

        *at_ms* is now; a pod does not keep it, since what comes after it is another pod.

        Nothing, if it was told before or holds none.
        """
        told = self._told.get(uid)
        if told is None or told.admission is None or told.evicted:
            return [], []
        effects = self.evict(Evict(uid, None, why, message))
        self._stopping.add(uid)
        return self.tell_again(uid), effects

    def clocked(self, uid: WorkloadUid) -> Clocked | None:
        """What the clock has to know of *uid*; None if it is gone."""
        told = self._told.get(uid)
        if told is None:
            return None
        incomplete = told.held is not None and told.held.code is ReasonCode.GANG_INCOMPLETE
        pods = self.pods_of(uid)
        admission = None if told.evicted else told.admission
        wanted = sum(given.count for given in admission.assignments) if admission else 0
        return Clocked(
            incomplete_ms=max(pod.created_ms for pod in pods) if incomplete and pods else None,
            admitted_ms=admission.at_ms if admission else None,
            ready=sum(pod.ready and not pod.deleting for pod in pods) >= wanted,
            run_s_max=max((pod.run_s_max for pod in pods), default=0),
        )

    def admission_of_told(self, uid: WorkloadUid) -> Admission | None:
        """The admission of *uid* as the engine was last told."""
        told = self._told.get(uid)
        return told.admission if told else None

    # --- words ---

    def say_again(self) -> None:
        """A new term: everything there is to say about single pods is news, by and by (``say_more``)."""
        for remarks_of_group in self._remarks.values():
            self.remarked.update(remarks_of_group)
        self._unsaid = iter(list(self._pods))

    def say_more(self, most: int) -> None:
        """Look at *most* more of the pods that there may be something to say about since the term began."""
        for uid in islice(self._unsaid, most):
            pod = self._pods.get(uid)
            if pod is not None:
                self._note_stale(pod)

    def condition(self, workload: WorkloadUid, why: Reason | None) -> list[PodEffect]:
        """The writes that say why a workload waits; *why* None: it is admitted."""
        status, code, message = (
            (True, ADMITTED, "quota is reserved") if why is None else (False, str(why.code), why.sentence())
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
