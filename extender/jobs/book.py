"""The book of Jobs: what an engine's decision means on a Job, and what its state asks for by itself.

A Job is admitted by one PATCH and stopped by one, however many pods it has. Facts go in and facts about workloads come
out (``records``); decisions go in and writes come out (here). ``repairs`` are the writes that need no decision.
Source: jobs specification, section 8.
"""

from extender.jobs.admission import read_job_admission
from extender.jobs.records import ANY_VERSION
from extender.jobs.timed import Timed
from extender.jobs.writes import Writes
from extender.model.effects import Admit, Evict, RecordEvent
from extender.model.events import AdmissionRefused, EngineEvent, EvictionRefused
from extender.model.jobs import (
    GROWTH_PREFIX,
    JOB_PREFIX,
    GrowJob,
    Job,
    JobAct,
    JobEffect,
    Kind,
    NudgePod,
    StartJob,
    StopJob,
)
from extender.model.names import WorkloadUid
from extender.model.reasons import Reason

CONFLICT = "conflict"
FENCED = "fenced"
"""How the causes of refused writes begin that say nothing about the next attempt: the object was changed meanwhile, or
somebody else leads."""
CAUSE_LENGTH_MAX = 120


class JobBook(Timed):
    """What is known of Jobs and their pods, and what to write."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        super().__init__()
        self._writes = Writes(kinds, self.flavors)
        self._outdated: dict[str, tuple[StartJob, str]] = {}
        self._asked: dict[str, str] = {}
        self._barred: set[str] = set()

    def job_seen(self, job: Job) -> list[EngineEvent]:
        """A Job was created or changed."""
        return [*self._catch_up(job), *super().job_seen(job)]

    def job_gone(self, uid: str) -> list[EngineEvent]:
        """A Job was deleted, or concerns us no more."""
        self._outdated.pop(uid, None)
        self._asked.pop(uid, None)
        self._barred.discard(uid)
        return super().job_gone(uid)

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

    def evict(self, evict: Evict, *, at_ms: int = 0) -> list[JobEffect | RecordEvent]:
        """The one write that stops a Job, and a word about it. *at_ms*: when, if the clock asks for it."""
        job = self._jobs.get(evict.uid.removeprefix(JOB_PREFIX))
        if job is None or evict.uid.startswith(GROWTH_PREFIX):
            return []
        text = self._assumed.get(job.uid) or job.admission
        given = read_job_admission(job.uid, text)
        if given is None or text is None or (job.suspended and job.uid not in self._assumed):
            return []
        if self._stopping.get(job.uid) == given.id:
            return []  # told by the clock before
        word = "Preempted" if evict.reason.preempts else f"EvictedDueTo{evict.reason}"
        return [
            self._writes.stop(job, given, text, reason=evict.reason, at_ms=at_ms),
            self._writes.event(job, word, evict.message),
        ]

    def refuse(self, write: JobAct, cause: str) -> list[EngineEvent]:
        """The write was not carried out.

        After a conflict the charge is kept until the watch shows the change. A start that Kubernetes does not accept,
        since the template may not change yet, say, is tried again when the Job has changed; if that was in vain too, or
        nothing changes, not before ``ask_again`` is called. What the state of a Job asks for waits for that call too.
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
                self._bar(write.uid, cause)
                return [AdmissionRefused(write.workload, cause)]
            case StopJob():
                self._bar(write.uid, cause)
                return [EvictionRefused(write.workload, cause), *self.goes_on(write.uid)]
            case _:
                self._bar(write.uid, cause)
                return []

    def _bar(self, uid: str, cause: str) -> None:
        """Let what the state of the Job asks for rest, unless *cause* says nothing about the next attempt."""
        if cause.startswith(FENCED):
            self._unask(uid)
        elif not cause.startswith(CONFLICT):  # after which the watch shows a version that asks anew
            self._barred.add(uid)

    def _unask(self, uid: str) -> None:
        self._asked.pop(uid, None)
        if uid in self._jobs:
            self._unsettled[uid] = None

    def ask_again(self, uid: str) -> list[EngineEvent]:
        """What was not accepted about a Job may be by now: a policy of somebody else has changed, say."""
        if uid in self._barred:
            self._barred.discard(uid)
            self._unask(uid)
        return self._retell(uid) if self._refused.pop(uid, None) is not None else []

    def _give_back(self, write: StartJob, cause: str) -> list[EngineEvent]:
        told: list[EngineEvent] = [AdmissionRefused(write.workload, cause)]
        if not cause.startswith((CONFLICT, FENCED)) and write.uid in self._jobs:
            # Refused twice in one rest, it waits whatever changes: a status that moves all the time is no reason.
            lifted_by_change = write.uid not in self._refused
            version = write.resource_version if lifted_by_change else ANY_VERSION
            self._refused[write.uid] = (version, cause[:CAUSE_LENGTH_MAX])
            told += self._retell(write.uid)
        return told

    def _catch_up(self, job: Job) -> list[EngineEvent]:
        outdated = self._outdated.get(job.uid)
        if outdated is None or outdated[0].resource_version == job.resource_version:
            return []
        del self._outdated[job.uid]
        return self._give_back(*outdated) if job.admission is None else []

    def repairs(self) -> list[JobEffect]:
        """What the Jobs that changed since the last call ask for by themselves, each version of a Job once."""
        found: list[JobEffect] = [nudge for uid in self._regrown for nudge in self._nudges(uid)]
        self._regrown.clear()
        unsettled, self._unsettled = self._unsettled, {}
        for uid in unsettled:
            job = self._jobs.get(uid)
            if job is None or uid in self._assumed or self._asked.get(uid) == job.resource_version:
                continue
            if uid in self._barred:
                continue
            write = self._repair(job)
            if write is not None:
                self._asked[uid] = job.resource_version
                found.append(write)
        return found

    def _nudges(self, uid: str) -> list[NudgePod]:
        """The pods that have a place now and may have been refused one before."""
        found = []
        for pod in self._of.get(uid, {}).values():
            given = self.assignment_of(pod) if pod.node is None and not pod.deleting else None
            if given is not None and self.may_take_a_place(pod, given.name, given.count):
                found.append(NudgePod(pod.uid, pod.namespace, pod.name, given.count))
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
