"""Owns the engine and the books, and sets the pace: facts at once, decisions in passes of our own.

Everything here runs on one event loop and nothing awaits between a fact and its effect on the state, so there are no
locks. A turn (one pass and what is told of it) lets others have the loop every half millisecond; facts that come
meanwhile wait for its end, so that it decides as if it had never been interrupted. Only the leader runs passes and
writes; a follower's state is as current, so it answers the scheduler all the same and takes over in the pass after it
has the lease.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

import msgspec
import structlog

from extender.clockwork import REFUSED, Clockwork
from extender.engine.engine import Engine
from extender.model.effects import (
    Admit,
    AdoptPod,
    Effect,
    Evict,
    EvictionReason,
    EvictPod,
    SetPodCondition,
    SetQueueStatus,
    UngatePod,
)
from extender.model.events import EngineEvent, Event
from extender.model.jobs import GrowJob, ReleaseJob, ResetStart, StartJob, StopJob, SuspendJob
from extender.model.names import WorkloadUid
from extender.patrol import Patrol
from extender.pods.books import Books
from extender.pods.timers import Times
from extender.sentences import cluster_queue_of, eviction
from extender.teller import Gauges, Teller
from extender.turns import Turns

PACE_S = 0.005
"""Facts that arrive within this time share a turn."""
PACE_S_MAX = 0.025
"""Facts share a turn for twice as long as the last one took, but no longer than this.

Whoever waits is tried again in every turn in which room came free in his tree, mostly in vain. When much is going on, a
little patience saves most of those, and with them the CPU that the API server beside us needs.
"""
IDLE_S = 1.0
"""How long the loop sleeps at most: conditions and status are looked at this often."""
STEP_S = 0.0005
"""How long a turn holds the event loop before others have their turn: requests of the scheduler wait no longer."""

log = structlog.get_logger()


class Meter(Gauges, Protocol):
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

    def violated(self, invariant: str) -> None:
        """What must always hold did not."""
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
        times: Times = Times(),  # noqa: B008 - frozen
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns or Turns()
        self.engine = engine
        self.books = books
        self._submit = submit
        self._clock_ms = clock_ms
        self._meter = meter
        self._teller = Teller(engine=engine, books=books, submit=submit, gauges=meter)
        self._clockwork = Clockwork(
            books=books, teller=self._teller, times=times, tell=self._tell, submit=submit, stopped=self._stopped
        )
        self._patrol = Patrol(engine, meter.violated)
        self._leading = False
        self._wake = asyncio.Event()
        self._wake_at_ms: int | None = None
        self._turn_s = 0.0
        self._turning: Iterator[None] | None = None
        self._stepping = False
        self._late: deque[Callable[[], None]] = deque()
        self._decided = False

    # --- facts ---

    def take(self, events: Iterable[Event]) -> None:
        """Take facts from the watches at once, or at the end of the turn in whose middle they come."""
        if self._in_a_turn():
            self._put_off(partial(self.take, events))
            return
        self.books.begin()
        for event in events:
            for told in self.books.apply(event):
                self._tell(told)
        for told in self.books.settle():
            self._tell(told)
        now_ms = self._clock_ms()
        self._teller.words(now_ms)
        self._clockwork.take(now_ms)
        self._wake.set()

    def _tell(self, event: EngineEvent) -> None:
        self.engine.apply(event)
        self._teller.fact(event, self._clock_ms())

    def lead(self, leading: bool) -> None:
        """Start or stop deciding."""
        self._end_turn()
        if leading != self._leading:
            log.info("leading" if leading else "following")
            self._teller.start_over()
        self._leading = leading
        if not leading:
            self._clockwork.give_up()
        self._meter.leading(leading)
        self._wake.set()

    # --- outcomes of writes ---

    def done(self, effect: Effect) -> None:
        """A write was carried out; the watch will show it."""
        self._clockwork.done(effect)

    def refused(self, effect: Effect, cause: str) -> None:
        """A write was not carried out: give back what was charged for it, or let the victim be chosen again."""
        if self._in_a_turn():
            self._put_off(partial(self.refused, effect, cause))
            return
        name = type(effect).__name__
        match effect:
            case UngatePod() | EvictPod() | AdoptPod():
                log.warning("write_refused", effect=name, namespace=effect.namespace, pod=effect.name, cause=cause)
                self._clockwork.refused(effect, cause, self._clock_ms())
                self._wake.set()
            case StartJob() | StopJob() | SuspendJob() | GrowJob() | ResetStart() | ReleaseJob():
                log.warning("write_refused", effect=name, job=f"{effect.ref.namespace}/{effect.ref.name}", cause=cause)
                self._clockwork.refused_job(effect, cause, self._clock_ms())
                self._wake.set()
            case SetQueueStatus():
                log.info("write_refused", effect=name, kind=effect.kind, name=effect.name, cause=cause)
                self._teller.refused(effect)
            case SetPodCondition() if cause.startswith((*REFUSED, "fenced")):
                log.info("write_refused", effect=name, namespace=effect.namespace, pod=effect.name, cause=cause)
                self._teller.unsaid(effect, self._clock_ms())
            case _:
                log.info("write_refused", effect=name, cause=cause)

    # --- decisions ---

    async def run(self) -> None:
        """Decide whenever there is something to decide, until cancelled."""
        while True:
            await self._rest()
            if self._leading:
                await self._turn_by_and_by()

    async def _turn_by_and_by(self) -> None:
        """A turn that lets others have the loop every half millisecond. What it decides is the same."""
        self._turning = self._steps()
        clock, turn_s, goes_on = time.perf_counter, 0.0, True  # uvloop's clock moves in whole milliseconds
        while goes_on:
            async with self._turns:
                began_s = clock()
                while (goes_on := self._step()) and clock() - began_s < STEP_S:
                    pass
                turn_s += clock() - began_s
        self._turn_s = turn_s

    def turn(self) -> None:
        """All that a leader does about what it knows now."""
        self._turning = self._steps()
        self._end_turn()

    def _end_turn(self) -> None:
        """Do the rest of a turn that others have interrupted."""
        while not self._stepping and self._step():
            pass

    def _step(self) -> bool:
        """One step of the turn; whether there was one."""
        if self._turning is None:
            return False
        self._stepping = True
        try:
            next(self._turning)
        except StopIteration:
            self._turning = None
            return False
        finally:
            self._stepping = False
        return True

    def _in_a_turn(self) -> bool:
        """Whether a turn is interrupted: what comes now waits for its end, for it decides on what it began with.

        A write that is refused in the moment in which the turn itself hands it over does not wait.
        """
        return self._turning is not None and not self._stepping

    def _put_off(self, news: Callable[[], None]) -> None:
        """Let *news* wait for the end of the turn, behind what came before it.

        Once all is decided, whoever brings something takes in something: else the turn would not end while others bring
        as much as it takes in, and nobody would be admitted meanwhile.
        """
        self._late.append(news)
        if self._decided:
            self._step()

    def _steps(self) -> Iterator[None]:
        """A turn, step by step, and what came in the middle of it."""
        self._clockwork.pass_time(self._clock_ms())
        yield
        for effect in [*self.books.adoptions(), *self.books.finish()]:
            self._submit(effect)
            yield
        yield from self._deciding()
        now_ms = self._clock_ms()
        self._teller.words(now_ms)
        yield
        yield from self._teller.explain(now_ms)
        self._write_conditions(now_ms)
        yield
        yield from self._teller.write_statuses(now_ms)
        self._patrol.look(now_ms)
        yield
        self._decided = True
        while self._late:
            self._late.popleft()()
            yield
        self._decided = False

    async def _rest(self) -> None:
        now_ms = self._clock_ms()
        wakes: tuple[int | None, ...] = ()
        if self._leading:
            wakes = (self._wake_at_ms, self._teller.next_due_ms(now_ms), self._clockwork.next_due_ms())
        sleep_s = min([IDLE_S, *(max(0, at - now_ms) / 1000 for at in wakes if at is not None)])
        try:
            async with asyncio.timeout(max(sleep_s, PACE_S)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        await asyncio.sleep(min(PACE_S_MAX, max(PACE_S, 2 * self._turn_s)))

    def _deciding(self) -> Iterator[None]:
        """Do what has come due, run one pass, and hand the effects to the writer."""
        now_ms, started = self._clock_ms(), asyncio.get_running_loop().time()
        self._clockwork.pass_time(now_ms)
        yield
        if not self.engine.has_work:
            return
        result = None
        for result in self.engine.pass_in_steps(now_ms):  # noqa: B007 - the last one is the result
            yield
        assert result is not None
        self._wake_at_ms = result.wake_at_ms
        for effect in result.effects:
            match effect:
                case Admit():
                    self._admit(effect, now_ms)
                case Evict():
                    self._evict(effect)
            yield
        self._teller.tried(result.looked)
        admitted = any(isinstance(effect, Admit) for effect in result.effects)
        self._meter.attempt(admitted=admitted, seconds=asyncio.get_running_loop().time() - started)

    def _admit(self, admit: Admit, now_ms: int) -> None:
        workload, queue = self.engine.workload(admit.uid), admit.admission.cluster_queue
        log.info("workload_admitted", workload=self._name(admit.uid), cluster_queue=queue)
        self._teller.admitted(admit.uid, queue)
        if workload is not None:
            self._meter.admitted(queue, waited_s=max(0, now_ms - workload.created_ms) / 1000)
        for write in self.books.admit(admit):
            self._clockwork.submit(write)

    def _evict(self, evict: Evict) -> None:
        said = msgspec.structs.replace(evict, message=eviction(evict, self.engine, self.books))
        self._stopped(evict.uid, evict.reason, said.message, evict.preemptor)
        writes = self.books.evict(said)
        for write in writes:
            self._clockwork.submit(write)
        self._teller.evicted(writes, "Preempted" if evict.reason.preempts else f"EvictedDueTo{evict.reason}")

    def _stopped(
        self, uid: WorkloadUid, why: EvictionReason, message: str, preemptor: WorkloadUid | None = None
    ) -> None:
        queue = cluster_queue_of(uid, self.engine, self.books)
        preempting = cluster_queue_of(preemptor, self.engine, self.books) if preemptor else None
        log.info(
            "workload_evicted",
            workload=self._name(uid),
            cluster_queue=queue,
            reason=why,
            message=message,
            preemptor=self._name(preemptor) if preemptor else "",
        )
        self._meter.evicted(queue, reason=why, preempting=preempting)

    def _name(self, uid: WorkloadUid) -> str:
        workload = self.engine.workload(uid)
        return workload.name if workload else str(uid)

    def _write_conditions(self, now_ms: int) -> None:
        self._teller.write_conditions(now_ms)
