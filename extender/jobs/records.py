"""The facts side of the book of Jobs: every queued Job, its pods, and what the engine is told of them.

What state a Job is in follows from what the API server shows of it and of its pods, never from what was done before, so
a leader that begins in the middle goes on from there. Source: jobs specification, section 8.
"""

from extender.jobs.admission import JobAdmission, read_job_admission, read_unit_admission
from extender.jobs.shape import (
    Classes,
    Live,
    deactivated,
    growth_uid,
    growth_workload,
    hold,
    job_uid,
    leaving_workload,
    orphans_workload,
    running_workload,
    waiting_workload,
    wanted,
)
from extender.model.events import EngineEvent, WorkloadGone, WorkloadSeen
from extender.model.jobs import (
    JOB_PREFIX,
    Job,
)
from extender.model.names import FlavorName, Namespace, PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.quota import Labels, ResourceFlavor
from extender.model.reasons import ReasonCode, reason
from extender.model.workload import PodSetAssignment, Workload

ANY_VERSION = ""
"""A refused start with this version is held whatever the Job's version is."""
OWNERS_MAX = 6
"""How many controllers there may be from a pod up to its Job."""


class JobRecords:
    """What is known of Jobs and their pods. ``flavors`` and ``classes`` are kept current by whoever holds the book."""

    def __init__(self) -> None:
        self.classes = Classes({}, {})
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.excluded: set[Namespace] = set()
        self._jobs: dict[str, Job] = {}
        self._given: dict[str, JobAdmission | None] = {}
        self._past: dict[str, JobAdmission | None] = {}
        self._owners: dict[str, str] = {}
        self._pods: dict[PodUid, Pod] = {}
        self._of: dict[str, dict[PodUid, Pod]] = {}
        self._live: dict[str, dict[str, Live]] = {}
        self._told: dict[WorkloadUid, Workload] = {}
        self._assumed: dict[str, str] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._unsettled: dict[str, None] = {}
        self._fixed: set[str] = set()
        self._regrown: dict[str, None] = {}
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

    def has_a_place_left(self, pod: Pod, pod_set: str, count: int) -> bool:
        """Whether a pod that we have not seen yet surely is among the first *count*.

        It is, while its Job wants no more pods than that and fewer are known: whoever it replaces is known already, and
        counts until it has ended.
        """
        home = _home(pod)
        job = self._jobs[home]
        wants = next((wanted(job, one) for one in job.pods if one.name == pod_set), 0)
        return wants <= count and self._live.get(home, {}).get(pod_set, Live()).pods < count

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
            before = self._given.get(job.uid)
            self._given[job.uid] = given = read_job_admission(job.uid, job.admission)
            if before is not None and given is not None and before.id == given.id:
                self._regrown[job.uid] = None
            self._past[job.uid] = read_job_admission(job.uid, job.evicted)
        if job.admission is not None and self._assumed.get(job.uid) == job.admission:
            del self._assumed[job.uid]
        self._unsettled[job.uid] = None
        return self._retell(job.uid)

    def job_gone(self, uid: str) -> list[EngineEvent]:
        """A Job was deleted, or concerns us no more. What its pods use stays charged until they have ended."""
        self._owners.pop(uid, None)
        self._jobs.pop(uid, None)
        self._given.pop(uid, None)
        self._past.pop(uid, None)
        self._assumed.pop(uid, None)
        self._refused.pop(uid, None)
        self._unsettled.pop(uid, None)
        self._fixed.discard(uid)
        self._regrown.pop(uid, None)
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
        why = hold(job, self.classes, left=left) if given is None else deactivated(job)
        if holds is None and why is not None and why.code is ReasonCode.NOT_EVALUATED:
            return None  # new: its controller and we are about to see it settled
        version, cause = self._refused.get(job.uid, (None, ""))
        if why is None and version in (job.resource_version, ANY_VERSION):
            why = reason(ReasonCode.WRITE_RETRY, status=cause)
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


def _home(pod: Pod) -> str:
    unit = read_unit_admission(pod.unit_admission)
    return unit.job if unit else ""


def _pod_set(pod: Pod) -> str:
    unit = read_unit_admission(pod.unit_admission)
    return unit.pod_set if unit else ""


def _place(pod: Pod) -> tuple[bool, bool, int, str]:
    return (not pod.deleting, pod.node is None, pod.created_ms, pod.uid)
