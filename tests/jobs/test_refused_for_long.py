"""An API server that accepts no write about Jobs for a while: each is tried at a pace that slows down, none is lost."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from extender.driver import Driver
from extender.engine.engine import Engine
from extender.jobs.shelf import Shelf
from extender.model.events import ClusterQueueSeen, FlavorSeen, LocalQueueSeen, NamespaceSeen, PriorityClassSeen
from extender.model.jobs import GrowJob, Job, JobAct, JobSeen, ReleaseJob, ResetStart, StartJob, StopJob, SuspendJob
from extender.model.names import ClusterQueueName, FlavorName, LocalQueueName, Namespace
from extender.model.policy import Policy
from extender.model.quota import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from tests.jobs.build import GPU, KINDS, admitted, job
from tests.sim.replica import Meter

STEP_MS = 500
DENIED_MS = 62_000
PACE_MS = [0, 1_000, 3_000, 7_000, 15_000, 31_000, 61_000]
"""When something is tried that is refused every time: after 1, 2, 4, 8, 16 and 30 s more."""
LAB, BLUE = Namespace("lab"), FlavorName("blue")


class World:
    """A leading driver with one queue of eight GPUs, and an API server that refuses, or carries out nothing at all."""

    def __init__(self) -> None:
        self.now_ms = self.began_ms = 1_000_000
        self.version = 7
        self.tries: list[tuple[int, JobAct]] = []
        self.cause = "invalid: 403 not today"
        self.shown = job()
        self.driver = Driver(
            engine=Engine(Policy()),
            books=Shelf(KINDS),
            submit=self._answer,
            clock_ms=lambda: self.now_ms,
            meter=Meter(),
        )
        self._refused: list[JobAct] = []
        groups = (ResourceGroup((GPU,), (FlavorQuotas(BLUE, ((GPU, Quota(8)),)),)),)
        preemption = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
        queue = ClusterQueue(
            ClusterQueueName("lab-cq"),
            resource_groups=groups,
            namespace_selector=Selector(),
            preemption=preemption,
        )
        facts = [
            FlavorSeen(ResourceFlavor(BLUE)),
            NamespaceSeen(LAB, ()),
            ClusterQueueSeen(queue),
            LocalQueueSeen(LocalQueue(LAB, LocalQueueName("lab"), queue.name)),
        ]
        self.driver.take(facts)
        self.driver.lead(True)

    def _answer(self, effect: object) -> None:
        if isinstance(effect, JobAct):
            self.tries.append((self.now_ms - self.began_ms, effect))
            self._refused.append(effect)

    def show(self, found: Job) -> None:
        """The Job is seen, as it is now."""
        self.version += 1
        self.shown = msgspec.structs.replace(found, resource_version=str(self.version))
        self.driver.take([JobSeen(self.shown)])

    def touch(self) -> None:
        """Something about the Job changes that is not our business."""
        self.show(self.shown)

    def turn(self) -> None:
        """It decides, and what it writes is refused."""
        self.driver.turn()
        refused, self._refused = self._refused, []
        for effect in refused:
            if self.cause:
                self.driver.refused(effect, self.cause)
            else:
                self.driver.done(effect)

    def runs(self, **changes: object) -> None:
        """The Job is started, and the API server has carried that out."""
        self.cause, cause = "", self.cause
        self.show(job())
        self.turn()
        ((_, write),) = self.tries
        assert isinstance(write, StartJob)
        self.show(admitted(write, **changes))
        self.turn()
        self.tries.clear()
        self.cause = cause

    def passes(self, each: Callable[[], None] = lambda: None) -> None:
        """A minute and two seconds pass."""
        while self.now_ms <= self.began_ms + DENIED_MS:
            each()
            self.turn()
            self.now_ms += STEP_MS

    def kinds(self) -> set[type]:
        """What was tried."""
        return {type(effect) for _, effect in self.tries}

    def times(self) -> list[int]:
        """When."""
        return [at_ms for at_ms, _ in self.tries]


def waits(world: World) -> None:
    """A held Job that fits."""
    world.show(job())


def is_outranked(world: World) -> None:
    """A Job that runs, and another of higher priority that needs its room."""
    world.runs()
    high = job(metadata__uid="u2", metadata__name="urgent", spec__parallelism=8, spec__completions=8)
    world.driver.take([JobSeen(msgspec.structs.replace(high, priority_class="high", resource_version="1"))])
    world.driver.take([high_class()])


def high_class() -> PriorityClassSeen:
    """The class of the other Job."""
    return PriorityClassSeen("high", 100)


def grows(world: World) -> None:
    """A Job that runs and is given two pods more."""
    world.runs()
    world.show(_counted(world.shown, 6))


def shrinks(world: World) -> None:
    """A Job that runs and is to have two pods less."""
    world.runs(status={"active": 2, "startTime": "2026-01-31T08:01:00Z"})
    world.show(_counted(world.shown, 2))


def _counted(found: Job, count: int) -> Job:
    pods = tuple(msgspec.structs.replace(one, count=count) for one in found.pods)
    return msgspec.structs.replace(found, pods=pods, parallelism=count, completions=count)


def runs_without_us(world: World) -> None:
    """A queued Job that nobody suspended."""
    world.show(job(spec__suspend=False, status={}))


def is_suspended_by_hand(world: World) -> None:
    """A Job that was started, and that somebody suspends."""
    world.runs()
    world.show(msgspec.structs.replace(world.shown, suspended=True))


def has_a_start_time(world: World) -> None:
    """A suspended Job whose status still says when it was started."""
    world.show(msgspec.structs.replace(job(), started=True))


def leaves_its_queue(world: World) -> None:
    """A held Job whose owner has taken the queue away."""
    world.show(msgspec.structs.replace(job(), queue=LocalQueueName("")))


CASES = [
    pytest.param(waits, StartJob, id="to start a Job"),
    pytest.param(is_outranked, StopJob, id="to stop a Job"),
    pytest.param(grows, GrowJob, id="to let a Job grow"),
    pytest.param(shrinks, GrowJob, id="to take back what a Job does not need"),
    pytest.param(runs_without_us, SuspendJob, id="to hold a Job"),
    pytest.param(is_suspended_by_hand, StopJob, id="to take back what a Job held that somebody suspended"),
    pytest.param(has_a_start_time, ResetStart, id="to clear a start time"),
    pytest.param(leaves_its_queue, ReleaseJob, id="to let a Job go"),
]


@pytest.mark.parametrize("cause", ["invalid: 403 not today", "expired: gave up", "gone: 404", "dropped: too many"])
@pytest.mark.parametrize(("happens", "act"), CASES)
async def test_what_is_refused_is_tried_again_at_a_pace_that_slows_down(happens, act, cause):
    world = World()
    world.cause = cause
    happens(world)
    world.passes()

    assert world.kinds() == {act}
    assert world.times() == PACE_MS


@pytest.mark.parametrize(("happens", "act"), CASES)
async def test_a_job_that_changes_all_the_time_is_no_reason_to_ask_more_often(happens, act):
    world = World()
    happens(world)
    world.passes(world.touch)

    assert world.kinds() == {act}
    assert len(world.tries) <= 2 * len(PACE_MS)


@pytest.mark.parametrize(("happens", "act"), CASES)
async def test_what_was_fenced_is_asked_for_again_in_the_next_term(happens, act):
    world = World()
    world.cause = "fenced: not the leader"
    happens(world)
    world.turn()
    world.driver.lead(False)
    world.driver.lead(True)
    before = len(world.tries)
    world.turn()

    assert [type(effect) for _, effect in world.tries[before:]] == [act]


@pytest.mark.parametrize(("happens", "act"), CASES)
async def test_once_it_is_accepted_nothing_is_tried_any_more(happens, act):
    world = World()
    happens(world)
    world.turn()
    world.cause = ""
    world.passes()

    assert [(at_ms, type(effect)) for at_ms, effect in world.tries] == [(0, act), (1_000, act)]
