"""Owns the engine and the books, and sets the pace: facts at once, decisions in passes of our own.

Everything here runs on one event loop and nothing awaits between a fact and its effect on the state, so there are no
locks. Only the leader runs passes and writes; a follower's state is as current, so it answers the scheduler all the
same and takes over in the pass after it has the lease.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from extender.engine.engine import Engine
from extender.model.effects import Admit, Effect, Evict, EvictPod, RecordEvent, SetQueueStatus, UngatePod
from extender.model.events import (
    EngineEvent,
    Event,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.jobs import GrowJob, ReleaseJob, ResetStart, StartJob, StopJob, SuspendJob
from extender.model.names import WorkloadUid
from extender.pods.books import Books
from extender.pods.conditions import Conditions
from extender.status import Statuses

PACE_S = 0.005
"""Facts that arrive within this time share a pass."""
IDLE_S = 1.0
"""How long the loop sleeps at most: conditions and status are looked at this often."""
STATUS_MS = 1_000
"""How often the status of queues is looked at."""
EXPLAINED_MAX = 50
"""How many workloads that no pass has looked at are given a reason in one round."""

log = structlog.get_logger()


class Meter(Protocol):
    """Counts what happened; see ``serve.metrics``."""

    def attempt(self, *, admitted: bool, seconds: float) -> None:
        """A pass ended."""
        ...

    def admitted(self, cluster_queue: str, *, waited_s: float) -> None:
        """A workload was admitted."""
        ...

    def evicted(self, cluster_queue: str, *, reason: str, preempting: str | None = None) -> None:
        """A workload was told to stop."""
        ...

    def leading(self, leads: bool) -> None:
        """Whether this replica writes."""
        ...


class Driver:
    """Facts in, effects out. ``submit`` hands one effect to the writer and returns at once."""

    def __init__(
        self,
        *,
        engine: Engine,
        books: Books,
        submit: Callable[[Effect], None],
        clock_ms: Callable[[], int],
        meter: Meter,
    ) -> None:
        self.engine = engine
        self.books = books
        self._submit = submit
        self._clock_ms = clock_ms
        self._meter = meter
        self._statuses = Statuses(engine, fair=bool(engine.policy.fair_sharing))
        self._statuses_ms = 0
        self._conditions = Conditions()
        self._unexplained: dict[WorkloadUid, None] = {}
        self._leading = False
        self._wake = asyncio.Event()
        self._wake_at_ms: int | None = None

    # --- facts ---

    def take(self, events: Iterable[Event]) -> None:
        """Take facts from the watches at once."""
        for event in events:
            for told in self.books.apply(event):
                self._tell(told)
        self._wake.set()

    def _tell(self, event: EngineEvent) -> None:
        self.engine.apply(event)
        match event:
            case WorkloadGone(uid):
                self._conditions.drop(uid)
                self._unexplained.pop(uid, None)
            case WorkloadSeen(workload) if workload.admission is not None:
                self._conditions.note(workload.uid, None, self._clock_ms())
                self._unexplained.pop(workload.uid, None)
            case WorkloadSeen(workload):
                self._unexplained[workload.uid] = None
            case _:
                pass

    def lead(self, leading: bool) -> None:
        """Start or stop deciding."""
        if leading != self._leading:
            log.info("leading" if leading else "following")
        self._leading = leading
        self._meter.leading(leading)
        self._wake.set()

    # --- outcomes of writes ---

    def done(self, effect: Effect) -> None:
        """A write was carried out; the watch will show it."""

    def refused(self, effect: Effect, cause: str) -> None:
        """A write was not carried out: give back what was charged for it, or let the victim be chosen again."""
        match effect:
            case UngatePod(namespace=namespace, name=name):
                log.warning("admission_refused", namespace=namespace, pod=name, cause=cause)
                for told in self.books.refuse(effect, cause):
                    self._tell(told)
            case EvictPod(namespace=namespace, name=name):
                log.warning("eviction_refused", namespace=namespace, pod=name, cause=cause)
                for told in self.books.refuse_eviction(effect, cause):
                    self._tell(told)
            case StartJob() | StopJob() | SuspendJob() | GrowJob() | ResetStart() | ReleaseJob():
                log.warning("job_write_refused", effect=type(effect).__name__, job=effect.ref.name, cause=cause)
                for told in self.books.refuse_job(effect, cause):
                    self._tell(told)
            case SetQueueStatus():
                self._statuses.forget(effect)
                return
            case _:
                log.info("write_refused", effect=type(effect).__name__, cause=cause)
                return
        self._wake.set()

    # --- decisions ---

    async def run(self) -> None:
        """Decide whenever there is something to decide, until cancelled."""
        while True:
            await self._rest()
            if self._leading:
                for effect in [*self.books.adoptions(), *self.books.finish()]:
                    self._submit(effect)
                self.decide()
                self._explain()
                self._write_conditions()
                self._write_statuses()

    async def _rest(self) -> None:
        now_ms = self._clock_ms()
        wakes = [at for at in (self._wake_at_ms, self._conditions.next_due_ms(now_ms)) if at is not None]
        sleep_s = min([IDLE_S, *(max(0, at - now_ms) / 1000 for at in wakes)])
        try:
            async with asyncio.timeout(max(sleep_s, PACE_S)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        await asyncio.sleep(PACE_S)

    def decide(self) -> None:
        """Run one pass and hand its effects to the writer."""
        if not self.engine.has_work:
            return
        now_ms, started = self._clock_ms(), asyncio.get_running_loop().time()
        result = self.engine.run_pass(now_ms)
        self._wake_at_ms = result.wake_at_ms
        for effect in result.effects:
            match effect:
                case Admit():
                    self._admit(effect, now_ms)
                case Evict():
                    self._evict(effect)
        for uid, why in result.reasons:
            self._conditions.note(uid, why, now_ms)
            self._unexplained.pop(uid, None)
        admitted = any(isinstance(effect, Admit) for effect in result.effects)
        self._meter.attempt(admitted=admitted, seconds=asyncio.get_running_loop().time() - started)

    def _admit(self, admit: Admit, now_ms: int) -> None:
        workload, queue = self.engine.workload(admit.uid), admit.admission.cluster_queue
        log.info("workload_admitted", workload=self._name(admit.uid), cluster_queue=queue)
        self._statuses.touch([queue])
        if workload is not None:
            self._meter.admitted(queue, waited_s=max(0, now_ms - workload.created_ms) / 1000)
        for write in self.books.admit(admit):
            self._submit(write)

    def _evict(self, evict: Evict) -> None:
        preemptor = self._name(evict.preemptor) if evict.preemptor else ""
        log.info("workload_evicted", workload=self._name(evict.uid), preemptor=preemptor, reason=evict.reason)
        self._meter.evicted(
            self._queue(evict.uid),
            reason=evict.reason,
            preempting=self._queue(evict.preemptor) if evict.preemptor else None,
        )
        for write in self.books.evict(evict):
            self._submit(write)
            if isinstance(write, EvictPod):
                self._submit(RecordEvent(write.uid, write.namespace, write.name, "Preempted", evict.message))

    def _queue(self, uid: WorkloadUid) -> str:
        admission = self.engine.admission_of(uid)
        return admission.cluster_queue if admission else ""

    def _name(self, uid: WorkloadUid) -> str:
        workload = self.engine.workload(uid)
        return workload.name if workload else str(uid)

    def _explain(self) -> None:
        """Give a reason to those that wait unseen, behind the head of a StrictFIFO queue for example."""
        now_ms = self._clock_ms()
        for uid in list(itertools.islice(self._unexplained, EXPLAINED_MAX)):
            del self._unexplained[uid]
            why = self.engine.reason_of(uid)
            if why is not None:
                self._conditions.note(uid, why, now_ms)

    def _write_conditions(self) -> None:
        for uid, why in self._conditions.due(self._clock_ms()):
            for effect in self.books.condition(uid, why):
                self._submit(effect)

    def _write_statuses(self) -> None:
        now_ms = self._clock_ms()
        if now_ms - self._statuses_ms < STATUS_MS:
            return
        self._statuses_ms = now_ms
        for effect in self._statuses.due(now_ms):
            self._submit(effect)
