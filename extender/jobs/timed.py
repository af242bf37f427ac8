"""What the clock has to know of Jobs: since when one runs, whether its pods are ready, how long it may; and its word.

A Job is ready when as many of its pods are ready, or have succeeded, as it was admitted for. batch/v1 Job says itself
how many have succeeded; of other kinds those are counted that end before our eyes. Source: jobs specification,
section 5; pods specification, section 8.
"""

import msgspec

from extender.jobs.admission import read_unit_admission
from extender.jobs.records import JobRecords
from extender.jobs.shape import job_uid
from extender.model.events import EngineEvent
from extender.model.jobs import JOB_PREFIX, Job
from extender.model.names import PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.workload import Workload
from extender.pods.holds import Holds
from extender.pods.timers import Clocked


class Timed(JobRecords):
    """The records of Jobs with what time needs. ``holds`` are kept by whoever holds the book.

    ``moved`` is for the driver to take: the workloads about which the clock may have a word.
    """

    def __init__(self) -> None:
        super().__init__()
        self.holds = Holds()
        self.moved: dict[WorkloadUid, None] = {}
        self._ready: dict[str, set[PodUid]] = {}
        self._done: dict[str, tuple[str, set[PodUid]]] = {}
        self._stopping: dict[str, str] = {}

    # --- questions ---

    def clocked(self, workload: WorkloadUid) -> Clocked | None:
        """What the clock has to know of a Job; None if the engine knows of none."""
        told, uid = self._told.get(workload), workload.removeprefix(JOB_PREFIX)
        if told is None:
            return None
        job = self._jobs.get(uid)
        if job is None or told.admission is None or told.evicted:
            return Clocked(run_s_max=job.run_s_max if job else 0)
        wanted = sum(one.count for one in told.admission.assignments)
        return Clocked(
            admitted_ms=told.admission.at_ms,
            ready=len(self._ready.get(uid, ())) + self._finished(job) >= wanted,
            run_s_max=job.run_s_max,
        )

    def _finished(self, job: Job) -> int:
        given = self._given[job.uid]
        if job.parallelism is not None:
            return job.done
        admission, done = self._done.get(job.uid, ("", set[PodUid]()))
        return len(done) if given is not None and given.id == admission else 0

    # --- its word ---

    def stopping(self, workload: WorkloadUid) -> list[EngineEvent]:
        """Time has come for a Job: it holds its quota until it is gone, and is nobody's victim meanwhile."""
        uid = workload.removeprefix(JOB_PREFIX)
        given = self._given.get(uid)
        if given is not None:
            self._stopping[uid] = given.id
        return self._retell(uid)

    def tell_again(self, workload: WorkloadUid) -> list[EngineEvent]:
        """What is to be told of a Job, if it has changed by something other than itself."""
        uid = workload.removeprefix(JOB_PREFIX)
        return self._retell(uid) if uid in self._jobs else []

    def goes_on(self, uid: str) -> list[EngineEvent]:
        """It was not stopped after all."""
        return self._retell(uid) if self._stopping.pop(uid, None) is not None else []

    # --- facts ---

    def job_gone(self, uid: str) -> list[EngineEvent]:
        """A Job was deleted, or concerns us no more."""
        self._stopping.pop(uid, None)
        self._done.pop(uid, None)
        return super().job_gone(uid)

    def pod_seen(self, pod: Pod) -> list[EngineEvent]:
        """A pod of a Job was created or changed."""
        unit = read_unit_admission(pod.unit_admission)
        if unit is not None:
            if pod.ended and pod.phase == "Succeeded":
                if self._done.get(unit.job, ("",))[0] != unit.id:
                    self._done[unit.job] = (unit.id, set())
                self._done[unit.job][1].add(pod.uid)
            self._note_ready(unit.job, pod.uid, ready=pod.ready and not (pod.deleting or pod.ended))
        return super().pod_seen(pod)

    def pod_gone(self, uid: PodUid) -> list[EngineEvent]:
        """A pod of a Job has ended."""
        pod = self._pods.get(uid)
        unit = read_unit_admission(pod.unit_admission) if pod else None
        if unit is not None:
            self._note_ready(unit.job, uid, ready=False)
        return super().pod_gone(uid)

    def _note_ready(self, job: str, pod: PodUid, *, ready: bool) -> None:
        among = self._ready.setdefault(job, set())
        if ready is not (pod in among):
            self.moved[job_uid(job)] = None
        if ready:
            among.add(pod)
        else:
            among.discard(pod)
        if not among:
            del self._ready[job]

    # --- what is told ---

    def _workload(self, job: Job) -> Workload | None:
        workload, given = super()._workload(job), self._given[job.uid]
        if workload is None:
            return None
        if given is not None and workload.admission is not None and self._stopping.get(job.uid) == given.id:
            return msgspec.structs.replace(workload, evicted=True)
        held = self.holds.get(workload.uid)
        if workload.admission is None and workload.held is None and held is not None:
            return msgspec.structs.replace(workload, held=held.why)
        return workload

    def _tell(self, uid: WorkloadUid, workload: Workload | None) -> list[EngineEvent]:
        told = super()._tell(uid, workload)
        if told and uid.startswith(JOB_PREFIX):
            self.moved[uid] = None
        return told
