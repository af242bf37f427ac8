"""The book of Jobs: every queued Job, its pods, and what an engine's decision means on it.

A Job is admitted by one PATCH and stopped by one, however many pods it has. What state it is in follows from what the
API server shows of it and of its pods, never from what was done before, so a leader that begins in the middle goes on
from there. ``repairs`` are the writes that such a state asks for by itself.
Source: jobs specification, section 8.
"""

from extender.jobs.admission import JobAdmission, read_job_admission, read_unit_admission
from extender.jobs.shape import (
    Classes,
    Live,
    growth_uid,
    growth_workload,
    hold,
    job_uid,
    leaving_workload,
    orphans_workload,
    running_workload,
    waiting_workload,
)
from extender.jobs.writes import Writes
from extender.model.effects import Admit, Evict, RecordEvent
from extender.model.events import AdmissionRefused, EngineEvent, EvictionRefused, WorkloadGone, WorkloadSeen
from extender.model.jobs import (
    GROWTH_PREFIX,
    JOB_PREFIX,
    GrowJob,
    Job,
    JobAct,
    JobEffect,
    Kind,
    StartJob,
    StopJob,
)
from extender.model.names import FlavorName, Namespace, PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.quota import Labels, ResourceFlavor
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import PodSetAssignment, Workload

CONFLICT = "conflict"
INVALID = "invalid"
OWNERS_MAX = 6
"""How many controllers there may be from a pod up to its Job."""


class JobBook:
    """What is known of Jobs and their pods. ``flavors`` and ``classes`` are kept current by whoever holds the book."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.classes = Classes({}, {})
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.excluded: set[Namespace] = set()
        self._writes = Writes(kinds, self.flavors)
        self._jobs: dict[str, Job] = {}
        self._given: dict[str, JobAdmission | None] = {}
        self._past: dict[str, JobAdmission | None] = {}
        self._owners: dict[str, str] = {}
        self._pods: dict[PodUid, Pod] = {}
        self._of: dict[str, dict[PodUid, Pod]] = {}
        self._live: dict[str, dict[str, Live]] = {}
        self._told: dict[WorkloadUid, Workload] = {}
        self._assumed: dict[str, str] = {}
        self._outdated: dict[str, tuple[StartJob, str]] = {}
        self._refused: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        self._unsettled: dict[str, None] = {}
        self._fixed: set[str] = set()
        self.late: list[EngineEvent] = []
        """What became clear while a decision was carried out; told with the next fact."""

    # --- questions ---

    def job(self, uid: str) -> Job | None:
        """The queued Job of that UID."""
        return self._jobs.get(uid)

    def jobs(self) -> list[Job]:
        """All queued Jobs."""
        return list(self._jobs.values())

    def pod(self, uid: str) -> Pod | None:
        """The live pod of a Job of that UID."""
        return self._pods.get(PodUid(uid))

    def pods(self) -> list[Pod]:
        """All live pods of Jobs."""
        return list(self._pods.values())

    def pods_of(self, workload: WorkloadUid) -> list[Pod]:
        """The live pods of the Job that *workload* is."""
        return list(self._of.get(workload.removeprefix(JOB_PREFIX), {}).values())

    def workload_of(self, pod: Pod) -> WorkloadUid:
        """The workload of a pod of a Job."""
        home = _home(pod)
        return job_uid(home) if home else WorkloadUid(pod.uid)

    def assignment_of(self, pod: Pod) -> PodSetAssignment | None:
        """What *pod* may use: the share of its pod set in the admission that it was made under, None if that is over.

        The pod's controllers must lead to the Job, whatever its annotation says. Cost: constant.
        """
        unit = read_unit_admission(pod.unit_admission)
        job = self._jobs.get(unit.job) if unit else None
        if unit is None or job is None or job.deleting or pod.owner is None:
            return None
        given = None if job.suspended else self._given[unit.job]
        if given is None or given.id != unit.id:
            # The pod shows that the write was carried out, before the Job itself does.
            given = read_job_admission(unit.job, self._assumed.get(unit.job))
        if given is None or given.id != unit.id or not self._leads_to(pod.owner.uid, unit.job):
            return None
        return next((one for one in given.admission.assignments if one.name == unit.pod_set), None)

    def is_ahead(self, pod: Pod) -> bool:
        """Whether *pod* was made under an admission that is newer than what we have seen of its Job."""
        unit = read_unit_admission(pod.unit_admission)
        if unit is None:
            return False
        known = [given for given in (self._given.get(unit.job), self._past.get(unit.job)) if given is not None]
        assumed = read_job_admission(unit.job, self._assumed.get(unit.job))
        newest = max([given.admission.at_ms for given in [*known, *([assumed] if assumed else [])]], default=0)
        return unit.at_ms > newest

    def labels_of(self, assignment: PodSetAssignment) -> Labels:
        """The node labels of the flavors of *assignment*, sorted."""
        names = dict.fromkeys(name for _, name in assignment.flavors)
        flavors = [self.flavors[name] for name in names if name in self.flavors]
        return tuple(sorted({pair for flavor in flavors for pair in flavor.node_labels}))

    def may_take_a_place(self, pod: Pod, pod_set: str, count: int) -> bool:
        """Whether *pod* is among the first *count* of its set: those that end, then those with a node, then by age."""
        home = _home(pod)
        if self._live.get(home, {}).get(pod_set, Live()).pods <= count:
            return True
        alike = sorted(_place(one) for one in self._of[home].values() if _pod_set(one) == pod_set)
        return _place(pod) in alike[:count]

    def _leads_to(self, owner: str, job: str) -> bool:
        for _ in range(OWNERS_MAX):
            if owner == job:
                return True
            found = self._owners.get(owner)
            if found is None:
                return False
            owner = found
        return False

    # --- facts ---

    def job_seen(self, job: Job) -> list[EngineEvent]:
        """A Job was created or changed."""
        if job.owner is not None:
            self._owners[job.uid] = job.owner.uid
        if not (job.managed or job.queue) or job.namespace in self.excluded:
            return []
        old = self._jobs.get(job.uid)
        self._jobs[job.uid] = job
        if old is None or (old.admission, old.evicted) != (job.admission, job.evicted):
            self._given[job.uid] = read_job_admission(job.uid, job.admission)
            self._past[job.uid] = read_job_admission(job.uid, job.evicted)
        if job.admission is not None and self._assumed.get(job.uid) == job.admission:
            del self._assumed[job.uid]
        self._unsettled[job.uid] = None
        return [*self._catch_up(job), *self._retell(job.uid)]

    def job_gone(self, uid: str) -> list[EngineEvent]:
        """A Job was deleted, or concerns us no more. What its pods use stays charged until they have ended."""
        self._owners.pop(uid, None)
        self._jobs.pop(uid, None)
        self._given.pop(uid, None)
        self._past.pop(uid, None)
        self._assumed.pop(uid, None)
        self._outdated.pop(uid, None)
        self._refused.pop(uid, None)
        self._asked.pop(uid, None)
        self._unsettled.pop(uid, None)
        self._fixed.discard(uid)
        return self._retell(uid)

    def pod_seen(self, pod: Pod) -> list[EngineEvent]:
        """A pod of a Job was created or changed."""
        if pod.ended:
            return self.pod_gone(pod.uid)
        old = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        home = _home(pod)
        if not home:
            return []
        self._of.setdefault(home, {})[pod.uid] = pod
        before = Live(1, int(old.node is not None)) if old else Live()
        return self._count(home, _pod_set(pod), 1 - before.pods, int(pod.node is not None) - before.bound)

    def pod_gone(self, uid: PodUid) -> list[EngineEvent]:
        """A pod of a Job has ended."""
        pod = self._pods.pop(uid, None)
        home = _home(pod) if pod else ""
        if pod is None or not home:
            return []
        members = self._of[home]
        del members[uid]
        if not members:
            del self._of[home]
        return self._count(home, _pod_set(pod), -1, -int(pod.node is not None))

    def _count(self, home: str, pod_set: str, pods: int, bound: int) -> list[EngineEvent]:
        """Count these pods more; what that means to the engine. Cost: constant, whatever else the Job has."""
        if not (pods or bound) and home in self._jobs:
            return []
        sets = self._live.setdefault(home, {})
        old = sets.get(pod_set, Live())
        sets[pod_set] = Live(old.pods + pods, old.bound + bound)
        if home not in self._of:
            del self._live[home]
        if pods < 0 and home in self._jobs:
            self._unsettled[home] = None
        return self._retell(home)

    def retell_all(self) -> list[EngineEvent]:
        """What priorities are worth has changed."""
        return [told for uid in list(self._jobs) for told in self._retell(uid)]

    def _retell(self, uid: str) -> list[EngineEvent]:
        job = self._jobs.get(uid)
        if job is None:
            return self._tell(job_uid(uid), self._orphans(uid)) + self._tell(growth_uid(uid), None)
        given = self._given[uid]
        growth = growth_workload(job, given, self.classes) if given is not None and uid not in self._fixed else None
        if growth is not None and growth_uid(uid) in self._told and uid in self._assumed:
            growth = self._told[growth_uid(uid)]  # it is being written
        return self._tell(growth_uid(uid), growth) + self._tell(job_uid(uid), self._workload(job))

    def _workload(self, job: Job) -> Workload | None:
        given, past = self._given[job.uid], self._past[job.uid]
        live = self._live.get(job.uid, {})
        if given is not None and not (job.suspended or job.deleting or job.finished):
            return running_workload(job, given, live, self.classes)
        holds = given or past
        leaving = leaving_workload(job, holds, live, self.classes) if holds is not None and live else None
        if leaving is not None:
            return leaving
        if job.finished or job.deleting:
            return None
        left = sum(one.pods for one in live.values())
        why = hold(job, self.classes, left=left) if given is None else _stopped_by_hand()
        if why is None and self._refused.get(job.uid) == job.resource_version:
            why = reason(ReasonCode.WRITE_RETRY, status="not accepted yet")
        return waiting_workload(job, given or past, self.classes, held=why)

    def _orphans(self, uid: str) -> Workload | None:
        units = ((pod, read_unit_admission(pod.unit_admission)) for pod in self._of.get(uid, {}).values())
        return orphans_workload(uid, [(pod, unit) for pod, unit in units if unit is not None])

    def _tell(self, uid: WorkloadUid, workload: Workload | None) -> list[EngineEvent]:
        if workload is None:
            return [WorkloadGone(uid)] if self._told.pop(uid, None) is not None else []
        if self._told.get(uid) == workload:
            return []
        self._told[uid] = workload
        return [WorkloadSeen(workload)]

    # --- decisions ---

    def admit(self, admit: Admit) -> list[JobEffect]:
        """The one write that makes an admission true."""
        uid = admit.uid.removeprefix(GROWTH_PREFIX).removeprefix(JOB_PREFIX)
        job = self._jobs.get(uid)
        if job is None:
            return []
        if admit.uid.startswith(GROWTH_PREFIX):
            given = self._given[uid]
            write: StartJob | GrowJob | None = self._writes.grow(job, given, admit.admission) if given else None
        else:
            write = self._writes.start(job, self._past[uid], admit.admission)
        if write is None:
            self._fixed.add(uid)
            self.late += self._tell(admit.uid, None)
            return []
        self._assumed[uid] = write.admission
        return [write]

    def evict(self, evict: Evict) -> list[JobEffect | RecordEvent]:
        """The one write that stops a Job, and a word about it."""
        job = self._jobs.get(evict.uid.removeprefix(JOB_PREFIX))
        if job is None or evict.uid.startswith(GROWTH_PREFIX):
            return []
        text = self._assumed.get(job.uid) or job.admission
        given = read_job_admission(job.uid, text)
        if given is None or text is None or (job.suspended and job.uid not in self._assumed):
            return []
        return [
            self._writes.stop(job, given, text, reason=evict.reason),
            self._writes.event(job, "Preempted", evict.message),
        ]

    def refuse(self, write: JobAct, cause: str) -> list[EngineEvent]:
        """The write was not carried out.

        After a conflict the charge is kept until the watch shows the change. What Kubernetes does not accept, such as a
        template that may not change yet, is tried again when the Job has changed.
        """
        job = self._jobs.get(write.uid)
        match write:
            case StartJob():
                self._assumed.pop(write.uid, None)
                if job is not None and cause.startswith(CONFLICT) and job.resource_version == write.resource_version:
                    self._outdated[write.uid] = (write, cause)
                    return []
                return self._give_back(write, cause)
            case GrowJob():
                self._assumed.pop(write.uid, None)
                return [AdmissionRefused(write.workload, cause)]
            case StopJob(deactivate=False):
                return [EvictionRefused(write.workload, cause)]
            case _:
                if not cause.startswith((CONFLICT, INVALID)):
                    self._asked.pop(write.uid, None)
                    self._unsettled[write.uid] = None
                return []

    def _give_back(self, write: StartJob, cause: str) -> list[EngineEvent]:
        told: list[EngineEvent] = [AdmissionRefused(write.workload, cause)]
        if cause.startswith(INVALID):
            self._refused[write.uid] = write.resource_version
            told += self._retell(write.uid) if write.uid in self._jobs else []
        return told

    def _catch_up(self, job: Job) -> list[EngineEvent]:
        outdated = self._outdated.get(job.uid)
        if outdated is None or outdated[0].resource_version == job.resource_version:
            return []
        del self._outdated[job.uid]
        return self._give_back(*outdated) if job.admission is None else []

    def repairs(self) -> list[JobEffect]:
        """What the Jobs that changed since the last call ask for by themselves, each version of a Job once."""
        found: list[JobEffect] = []
        unsettled, self._unsettled = self._unsettled, {}
        for uid in unsettled:
            job = self._jobs.get(uid)
            if job is None or uid in self._assumed or self._asked.get(uid) == job.resource_version:
                continue
            write = self._repair(job)
            if write is not None:
                self._asked[uid] = job.resource_version
                found.append(write)
        return found

    def _repair(self, job: Job) -> JobAct | None:
        given, past = self._given[job.uid], self._past[job.uid]
        if job.finished or job.deleting:
            return None
        if not job.queue:
            # Its owner took the queue away. What runs goes on, and is charged until it ends.
            return self._writes.release(job, given or past) if job.suspended and job.managed else None
        if given is None and not (job.suspended and job.managed):
            return self._writes.hold(job)
        if given is not None and job.suspended:
            return self._writes.stop(job, given, job.admission or "", reason=None)
        if given is None and job.started and job.suspension_seen and not job.running:
            return self._writes.reset(job)
        if given is not None and not job.suspended:
            return self._writes.shrink(job, given, self._live.get(job.uid, {}))
        return None

    def conditions(self, workload: WorkloadUid, why: Reason | None) -> list[JobEffect | RecordEvent]:
        """The write that says why a Job waits; *why* None: it is admitted."""
        job = self._jobs.get(workload.removeprefix(JOB_PREFIX))
        return self._writes.condition(job, why) if job is not None else []


def _stopped_by_hand() -> Reason:
    return reason(ReasonCode.DEACTIVATED, by="hand; remove the annotation cohort-extender.io/active to queue it again")


def _home(pod: Pod) -> str:
    unit = read_unit_admission(pod.unit_admission)
    return unit.job if unit else ""


def _pod_set(pod: Pod) -> str:
    unit = read_unit_admission(pod.unit_admission)
    return unit.pod_set if unit else ""


def _place(pod: Pod) -> tuple[bool, bool, int, str]:
    return (not pod.deleting, pod.node is None, pod.created_ms, pod.uid)
