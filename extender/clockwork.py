"""What time does: it ends back-offs, repeats what was refused, and stops what was slow or ran long enough.

``pods.timers`` knows when, this module what. A write that the API server does not accept is not repeated at once, since
it would be refused again: its pod waits for 1 s, 2 s and so on to 30 s, and says so.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from extender.model.effects import AdoptPod, Effect, EvictionReason, EvictPod, UngatePod
from extender.model.events import EngineEvent
from extender.model.jobs import GrowJob, JobAct, ReleaseJob, ResetStart, StartJob, StopJob, SuspendJob
from extender.model.names import PodUid, WorkloadUid
from extender.model.reasons import Reason, ReasonCode, reason
from extender.pods.books import Books
from extender.pods.holds import Hold
from extender.pods.timers import Due, Timers, Times, What
from extender.teller import Teller

REFUSED = ("invalid", "expired")
"""How the causes of words begin that are worth saying later."""
AT_ONCE = ("conflict", "fenced")
"""How the causes of writes begin that say nothing about the next attempt. All others would be met again at once."""
FENCED = "fenced: not the leader"
CAUSE_LENGTH_MAX = 120
ABSENT_MS = 60_000
"""A group that was stopped for good and has had no pod for so long is another group when it comes back."""
_HOLD, _ADOPT, _WRITE, _JOB, _LIFT, _READY = "hold:", "adopt:", "write:", "job:", "lift:", "ready:"
Deferred = EvictPod | StopJob | GrowJob
"""Writes that the engine asks for again when they are refused."""


class Clockwork:
    """Timers with their consequences.

    ``tell`` gives a fact to the engine, ``submit`` an effect to the writer, ``stopped`` says who was told to stop
    and why.
    """

    def __init__(
        self,
        *,
        books: Books,
        teller: Teller,
        times: Times,
        tell: Callable[[EngineEvent], None],
        submit: Callable[[Effect], None],
        stopped: Callable[[WorkloadUid, EvictionReason, str], None],
    ) -> None:
        self._books = books
        self._teller = teller
        self._timers = Timers(times)
        self._tell = tell
        self._submit = submit
        self._stopped = stopped
        self._resting: dict[str, int] = {}
        self._deferred: dict[str, Deferred] = {}

    def take(self, now_ms: int) -> None:
        """Note what has changed about workloads that have deadlines."""
        moved, self._books.moved = self._books.moved, {}
        for uid in moved:
            clocked = self._books.clocked(uid)
            self._timers.note(uid, clocked)
            if clocked is None:
                hold = self._books.holds.get(uid)
                if hold is not None and hold.endless:
                    self._timers.retry_at(_LIFT + uid, now_ms + ABSENT_MS)
            elif self._timers.times.ready is not None and clocked.admitted_ms is not None and clocked.ready:
                self._timers.succeeded(_READY + self._books.lineage_of(uid))

    def next_due_ms(self) -> int | None:
        """When something comes due, None if nothing does by itself."""
        return self._timers.next_due_ms()

    def pass_time(self, now_ms: int) -> None:
        """Do what has come due."""
        for due in self._timers.due(now_ms):
            if due.what is What.RETRY:
                self._retry(due.key)
            else:
                self._expire(due, now_ms)

    # --- writes ---

    def done(self, effect: Effect) -> None:
        """A write was carried out."""
        match effect:
            case StopJob() | GrowJob():
                self._timers.succeeded(_slot(effect))
            case UngatePod(uid=uid) | EvictPod(uid=uid) | AdoptPod(uid=uid):
                self._timers.succeeded(uid)
            case StartJob(uid=uid) | SuspendJob(uid=uid) | ResetStart(uid=uid) | ReleaseJob(uid=uid):
                self._timers.succeeded(uid)
            case _:
                pass

    def refused(self, effect: UngatePod | EvictPod | AdoptPod, cause: str, now_ms: int) -> None:
        """A write was not carried out. What would be refused again waits a little."""
        waits = not cause.startswith(AT_ONCE)
        match effect:
            case UngatePod():
                if waits:
                    self._rest(effect, cause, now_ms)
                self._give(self._books.refuse(effect, cause))
            case EvictPod():
                if waits:
                    self._let_rest(effect, now_ms)
                self._give(self._books.refuse_eviction(effect, cause))
            case AdoptPod():
                if waits:
                    self._timers.retry_at(_ADOPT + effect.uid, now_ms + self._timers.delay_ms(effect.uid))

    def refused_job(self, effect: JobAct, cause: str, now_ms: int) -> None:
        """A write about a Job was not carried out."""
        if not cause.startswith(AT_ONCE):
            if isinstance(effect, Deferred):
                at_ms = self._let_rest(effect, now_ms)
            else:
                at_ms = now_ms + self._timers.delay_ms(effect.uid)
            self._timers.retry_at(_JOB + effect.uid, at_ms)
        self._give(self._books.refuse_job(effect, cause))

    def _let_rest(self, effect: Deferred, now_ms: int) -> int:
        """What is not allowed now is not asked for again at once; when it may be.

        The engine is told at once, so that it counts on no room that may not come, and may choose the same again; it is
        the write that waits.
        """
        slot = _slot(effect)
        at_ms = self._resting[slot] = now_ms + self._timers.delay_ms(slot)
        self._timers.retry_at(_WRITE + slot, at_ms)
        return at_ms

    def _rest(self, effect: UngatePod, cause: str, now_ms: int) -> None:
        at_ms = now_ms + self._timers.delay_ms(effect.uid)
        why = reason(ReasonCode.WRITE_RETRY, status=cause[:CAUSE_LENGTH_MAX])
        for key in dict.fromkeys((str(effect.uid), str(effect.workload))):
            self._give(self._books.hold(key, Hold(why)))
            self._timers.retry_at(_HOLD + key, at_ms)

    def submit(self, effect: Effect) -> None:
        """Hand *effect* to the writer, one that was refused a moment ago when its time has come."""
        if isinstance(effect, Deferred) and _slot(effect) in self._resting:
            self._deferred[_slot(effect)] = effect
        else:
            self._submit(effect)

    def give_up(self) -> None:
        """Somebody else leads: what was put off does not happen."""
        deferred, self._deferred = self._deferred, {}
        self._resting.clear()
        for effect in deferred.values():
            if isinstance(effect, EvictPod):
                self._give(self._books.refuse_eviction(effect, FENCED))
            else:
                self._give(self._books.refuse_job(effect, FENCED))

    def _retry(self, key: str) -> None:
        kind, _, rest = key.partition(":")
        match kind + ":":
            case "hold:":
                self._give(self._books.release(rest))
            case "adopt:":
                self._give(self._books.adopt_again(PodUid(rest)))
            case "write:":
                self._resting.pop(rest, None)
                effect = self._deferred.pop(rest, None)
                if effect is not None and not (isinstance(effect, EvictPod) and self._books.pod(rest) is None):
                    self._submit(effect)
            case "job:":
                self._give(self._books.ask_again(rest))
            case "lift:" if self._books.clocked(WorkloadUid(rest)) is None:
                self._give(self._books.release(rest))
            case _:
                pass

    def _give(self, events: Iterable[EngineEvent]) -> None:
        for event in events:
            self._tell(event)

    # --- deadlines ---

    def _expire(self, due: Due, now_ms: int) -> None:
        uid = WorkloadUid(due.key)
        match due.what:
            case What.GROUP_INCOMPLETE:
                self._incomplete(uid)
            case What.NOT_STARTED | What.NOT_RECOVERED:
                self._time_out(uid, due.what, now_ms)
            case What.RAN_TOO_LONG:
                self._ran_too_long(uid, now_ms)
            case _:
                pass

    def _incomplete(self, uid: WorkloadUid) -> None:
        minutes = self._timers.times.group_ms / 60_000
        pods = self._books.pods_of(uid)
        if pods:
            said = f"{len(pods)} of {pods[0].group_total} pods of group {pods[0].group} exist"
            text = f"{said}, and no other has come for {minutes:g} min; it holds no quota and waits on"
            self._teller.warn(uid, "PodGroupTimeout", text)

    def _time_out(self, uid: WorkloadUid, what: What, now_ms: int) -> None:
        ready, key = self._timers.times.ready, self._books.lineage_of(uid)
        if ready is None or not key:
            return
        attempt = 1 + self._timers.count(_READY + key)
        limit_s = (ready.timeout_ms if what is What.NOT_STARTED else ready.recovery_ms) / 1000
        again = "again " if what is What.NOT_RECOVERED else ""
        cause = f"its pods were not {again}ready within {limit_s:g} s"
        for_good = ready.limit is not None and attempt > ready.limit
        why: Reason
        if for_good:
            by = f"waitForPodsReady after {attempt} attempts (backoffLimitCount {ready.limit}): {cause}"
            why, code = reason(ReasonCode.DEACTIVATED, by=by), EvictionReason.REQUEUING_LIMIT_EXCEEDED
            self._timers.succeeded(_READY + key)
        else:
            until_ms = now_ms + self._timers.backoff_ms(attempt)
            why = reason(ReasonCode.BACK_OFF, attempt=attempt + 1, until=_time(until_ms), cause=cause)
            code = EvictionReason.PODS_READY_TIMEOUT
            self._timers.retry_at(_HOLD + key, until_ms)
        self._stop(
            uid, code, why.sentence() if for_good else f"{cause} (attempt {attempt})", now_ms * (not ready.keeps_place)
        )
        whole = self._books.is_whole(uid)
        if key != uid or whole:
            self._give(self._books.hold(key, Hold(why, 0 if whole else now_ms, endless=for_good)))

    def _ran_too_long(self, uid: WorkloadUid, now_ms: int) -> None:
        clocked = self._books.clocked(uid)
        if clocked is None:
            return
        limit_s = clocked.run_s_max
        said = f"its maximum execution time of {limit_s} s is over"
        self._stop(uid, EvictionReason.MAXIMUM_EXECUTION_TIME_EXCEEDED, said, now_ms)
        if self._books.is_whole(uid):  # a pod on its own is followed by another one with a time of its own
            by = f"its maximum execution time of {limit_s} s; delete the group's pods to start over"
            self._give(self._books.hold(uid, Hold(reason(ReasonCode.DEACTIVATED, by=by), endless=True)))

    def _stop(self, uid: WorkloadUid, why: EvictionReason, message: str, now_ms: int) -> None:
        events, writes = self._books.stop(uid, why, message, at_ms=now_ms)
        if writes:
            self._stopped(uid, why, message)
        for write in writes:
            self.submit(write)
        self._give(events)
        self._teller.evicted(writes, f"EvictedDueTo{why}")


def _slot(effect: Deferred) -> str:
    """Where *effect* waits: to stop a Job and to let it grow are two things, and each pod of a Job is one."""
    return effect.uid if isinstance(effect, EvictPod) else effect.workload


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%H:%M:%S} UTC"
