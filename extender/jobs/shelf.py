"""All books together: those of pods and that of Jobs, behind one set of questions.

A pod is in exactly one of them. What makes it part of a Job is an annotation of the Job's pod template, written before
any pod exists, so the pod itself says where it belongs, whatever queue or group it names besides.
"""

from collections.abc import Iterable

from extender.jobs.book import JobBook
from extender.model.effects import Admit, Evict, EvictionReason, EvictPod, PodEffect
from extender.model.events import (
    EngineEvent,
    Event,
    EvictionRefused,
    FlavorGone,
    FlavorSeen,
    PodGone,
    PodSeen,
    PriorityClassGone,
    PriorityClassSeen,
)
from extender.model.jobs import (
    GROWTH_PREFIX,
    JOB_PREFIX,
    JobAct,
    JobGone,
    JobSeen,
    Kind,
    PodPriorityClassGone,
    PodPriorityClassSeen,
    SetJobCondition,
)
from extender.model.names import Namespace, WorkloadUid
from extender.model.pods import Pod
from extender.model.reasons import Reason
from extender.pods.books import Books
from extender.pods.holds import Hold
from extender.pods.records import NEVER_OURS
from extender.pods.timers import Clocked


class Shelf(Books):
    """The books of pods with the book of Jobs beside them."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        super().__init__()
        self.jobs = JobBook(kinds)
        self.jobs.excluded.update(NEVER_OURS)
        self.jobs.holds = self.holds
        self._pod_classes: dict[str, PodPriorityClassSeen] = {}

    def exclude(self, namespace: Namespace) -> None:
        """Never touch anything in *namespace*, whatever it names."""
        super().exclude(namespace)
        self.jobs.excluded.add(namespace)

    def pod(self, uid: str) -> Pod | None:
        """The live pod of that UID, None if there is none or it has ended."""
        return self.jobs.pod(uid) or super().pod(uid)

    def pods(self) -> Iterable[Pod]:
        """All live managed pods."""
        return [*super().pods(), *self.jobs.pods()]

    def pods_of(self, workload: WorkloadUid) -> list[Pod]:
        """The live pods of *workload*."""
        return self.jobs.pods_of(workload) if workload.startswith(JOB_PREFIX) else super().pods_of(workload)

    def workload_of(self, pod: Pod) -> WorkloadUid:
        """The workload that *pod* belongs to: its Job, its group, or itself."""
        return self.jobs.workload_of(pod) if pod.unit else super().workload_of(pod)

    def apply(self, event: Event) -> list[EngineEvent]:
        """Take a fact; answer what it means to the engine."""
        told = self._applied(event)
        self.moved.update(self.jobs.moved)
        self.jobs.moved.clear()
        return told

    def _applied(self, event: Event) -> list[EngineEvent]:
        told, self.jobs.late = self.jobs.late, []
        match event:
            case JobSeen(job):
                return told + self.jobs.job_seen(job)
            case JobGone(uid):
                return told + self.jobs.job_gone(uid)
            case PodSeen(pod) if pod.unit:
                return told + self._unit_seen(pod)
            case PodGone(uid) if self.jobs.pod(uid) is not None:
                self.nodes.unbind(uid)
                return told + self.jobs.pod_gone(uid)
            case PodPriorityClassSeen(name):
                self._pod_classes[name] = event
                return told + self._pod_classes_changed()
            case PodPriorityClassGone(name):
                self._pod_classes.pop(name, None)
                return told + self._pod_classes_changed()
            case FlavorSeen(flavor):
                self.jobs.flavors[flavor.name] = flavor
                return told + super().apply(event)
            case FlavorGone(name):
                self.jobs.flavors.pop(name, None)
                return told + super().apply(event)
            case PriorityClassSeen(name, value):
                self.jobs.classes.workload[name] = value
                return told + super().apply(event) + self.jobs.retell_all()
            case PriorityClassGone(name):
                self.jobs.classes.workload.pop(name, None)
                return told + super().apply(event) + self.jobs.retell_all()
            case _:
                return told + super().apply(event)

    def _unit_seen(self, pod: Pod) -> list[EngineEvent]:
        # Seen without the annotation once? It was in the other book then.
        left = super().apply(PodGone(pod.uid)) if super().pod(pod.uid) is not None else []
        if pod.ended or pod.node is None:
            self.nodes.unbind(pod.uid)
        else:
            self.nodes.bind(pod.uid, pod.node, pod.requests)
        return left + self.jobs.pod_seen(pod)

    def _pod_classes_changed(self) -> list[EngineEvent]:
        found = sorted(self._pod_classes.values(), key=lambda one: (one.value, one.name))
        self.jobs.classes.pod = {one.name: one.value for one in found}
        # Several defaults: the lowest counts, as for pods.
        self.jobs.classes.default = next((one.value for one in found if one.is_default), 0)
        return self.jobs.retell_all()

    def admit(self, admit: Admit) -> list[PodEffect]:
        """The writes that make an admission true."""
        if admit.uid.startswith((JOB_PREFIX, GROWTH_PREFIX)):
            return [*self.jobs.admit(admit)]
        return super().admit(admit)

    def evict(self, evict: Evict) -> list[PodEffect]:
        """The writes that stop a workload. Pods that outlived their Job are evicted one by one."""
        if not evict.uid.startswith((JOB_PREFIX, GROWTH_PREFIX)):
            return super().evict(evict)
        if self.jobs.job(evict.uid.removeprefix(JOB_PREFIX)) is not None or evict.uid.startswith(GROWTH_PREFIX):
            return [*self.jobs.evict(evict)]
        return [
            EvictPod(evict.uid, pod.uid, pod.namespace, pod.name, evict.reason, evict.message)
            for pod in self.jobs.pods_of(evict.uid)
            if not pod.deleting
        ]

    # --- time ---

    def clocked(self, uid: WorkloadUid) -> Clocked | None:
        """What the clock has to know of *uid*; None if it is gone."""
        return self.jobs.clocked(uid) if uid.startswith(JOB_PREFIX) else super().clocked(uid)

    def lineage_of(self, uid: WorkloadUid) -> str:
        """The key under which what comes after *uid* is known; empty if it is gone."""
        if uid.startswith(JOB_PREFIX):
            return uid if self.jobs.job(uid.removeprefix(JOB_PREFIX)) is not None else ""
        return super().lineage_of(uid)

    def is_whole(self, uid: WorkloadUid) -> bool:
        """Whether *uid* comes back as itself: a group or a Job."""
        return uid.startswith(JOB_PREFIX) or super().is_whole(uid)

    def tell_again(self, workload: WorkloadUid) -> list[EngineEvent]:
        """What is to be told of *workload*, if it has changed by something other than its pods."""
        if workload.startswith(JOB_PREFIX):
            return self.jobs.tell_again(workload)
        return super().tell_again(workload)

    def hold(self, key: str, hold: Hold) -> list[EngineEvent]:
        """Hold back a workload. A Job that is stopped for good says so itself, by its annotation."""
        return [] if key.startswith(JOB_PREFIX) and hold.endless else super().hold(key, hold)

    def stop(
        self, uid: WorkloadUid, why: EvictionReason, message: str, *, at_ms: int
    ) -> tuple[list[EngineEvent], list[PodEffect]]:
        """Time has come for an admitted workload."""
        if not uid.startswith(JOB_PREFIX):
            return super().stop(uid, why, message, at_ms=at_ms)
        writes: list[PodEffect] = [*self.jobs.evict(Evict(uid, None, why, message), at_ms=at_ms)]
        return (self.jobs.stopping(uid) if writes else []), writes

    def refuse_job(self, write: JobAct | SetJobCondition, cause: str) -> list[EngineEvent]:
        """A write about a Job was not carried out."""
        return [] if isinstance(write, SetJobCondition) else self.jobs.refuse(write, cause)

    def ask_again(self, job: str) -> list[EngineEvent]:
        """What was refused about a Job may be asked for again."""
        return self.jobs.ask_again(job)

    def refuse_eviction(self, write: EvictPod, cause: str) -> list[EngineEvent]:
        """The eviction of one pod was not carried out."""
        if write.workload.startswith(JOB_PREFIX):
            return [EvictionRefused(write.workload, cause)]
        return super().refuse_eviction(write, cause)

    def finish(self) -> list[PodEffect]:
        """The writes that complete what was begun, and those that the state of a Job asks for by itself."""
        return [*super().finish(), *self.jobs.repairs()]

    def condition(self, workload: WorkloadUid, why: Reason | None) -> list[PodEffect]:
        """The writes that say why a workload waits; *why* None: it is admitted."""
        if workload.startswith(JOB_PREFIX):
            return [*self.jobs.conditions(workload, why)]
        return [] if workload.startswith(GROWTH_PREFIX) else super().condition(workload, why)
