"""What time does to a Job: one whose pods are not ready waits longer each time, one that ran long enough stops."""

from typing import Any

import msgspec
import pytest

from extender.jobs.shelf import Shelf
from extender.model.effects import RecordEvent
from extender.model.events import PodGone, PodSeen
from extender.model.jobs import ACTIVE_ANNOTATION, Job, JobSeen, SetJobCondition, StartJob, StopJob
from extender.model.names import Namespace, NodeName, PodUid
from extender.pods.timers import ReadyTimes, Times
from tests.app.desk import LAB, NODE, Desk, of
from tests.jobs.build import KINDS, UID, admitted, evicted, job, unit_pod

READY = Times(ready=ReadyTimes(timeout_ms=10_000, recovery_ms=5_000, backoff_base_ms=20_000, limit=1))
GPU = "nvidia.com/gpu"
HELD = {
    "metadata__namespace": str(LAB),
    "metadata__labels": {"kueue.x-k8s.io/queue-name": "main", "cohort-extender.io/managed": "true"},
    "spec__parallelism": 2,
    "spec__completions": 2,
    "spec__template__spec": {"containers": [{"resources": {"requests": {GPU: "1"}}}]},
}


class Bench(Desk):
    """A desk with a Job of two pods on it."""

    def __init__(self, times: Times = READY, **changes: Any) -> None:
        super().__init__(times=times, books=Shelf(KINDS))
        self.queue()
        self.version = 10
        self.changes = {**HELD, **changes}
        self.see(job(**self.changes))

    def see(self, found: Job) -> None:
        self.version += 1
        self.take(JobSeen(msgspec.structs.replace(found, resource_version=str(self.version))))

    def start(self, *, after_ms: int = 0) -> StartJob:
        """It is admitted, and the watch shows it."""
        (write,) = of(self.turn(after_ms=after_ms), StartJob)
        self.driver.done(write)
        self.see(admitted(write, **self.changes))
        self.turn()
        return write

    def has_pods(self, write: StartJob, *names: str, **changes: Any) -> None:
        unit = dict(write.templates[0].annotations)["cohort-extender.io/unit-admission"]
        for name in names:
            self.take(PodSeen(unit_pod(name, unit=unit, namespace=Namespace(LAB), node=NodeName(NODE), **changes)))

    def stopped(self, write: StartJob, stop: StopJob) -> None:
        """The stop is carried out, and its pods are gone."""
        self.driver.done(stop)
        marks = {"cohort-extender.io/evicted": write.admission, "cohort-extender.io/requeue": stop.requeue}
        marks |= {ACTIVE_ANNOTATION: "false"} if stop.deactivate else {}
        status = {"conditions": [{"type": "Suspended", "status": "True"}]}
        self.see(evicted(write, **{**self.changes, "metadata__annotations": marks, "status": status}))

    def said(self, effects: list[object]) -> list[tuple[str, str]]:
        return [(one.reason, one.message) for one in of(effects, SetJobCondition) if not one.status]


async def test_a_job_whose_pods_are_not_ready_in_time_is_put_back_after_a_while():
    at = Bench()
    write = at.start()
    at.has_pods(write, "a", ready=True)
    at.has_pods(write, "b")

    assert of(at.turn(after_ms=9_999), StopJob) == []
    effects = at.turn(after_ms=1)
    (stop,) = of(effects, StopJob)
    at.take(PodGone(PodUid("a")), PodGone(PodUid("b")))
    at.stopped(write, stop)
    waits = at.turn()
    assert [event.reason for event in of(effects, RecordEvent)] == ["EvictedDueToPodsReadyTimeout"]
    assert (stop.deactivate, of(waits, StartJob)) == (False, [])
    assert at.said(waits)[0][0] == "BackOff"
    assert of(at.turn(after_ms=19_998), StartJob) == []
    assert len(of(at.turn(after_ms=2), StartJob)) == 1


@pytest.mark.parametrize("keeps_place", [False, True])
async def test_one_that_was_not_ready_in_time_is_behind_those_that_came_before_that(keeps_place: bool):
    at = Bench(Times(ready=msgspec.structs.replace(READY.ready, keeps_place=keeps_place)))
    write = at.start()
    (stop,) = of(at.turn(after_ms=10_000), StopJob)
    at.stopped(write, stop)
    stopped_ms = at.now_ms
    waits = at.driver.engine.workload(UID)
    at.start(after_ms=20_000)
    runs = at.driver.engine.workload(UID)

    assert waits.created_ms == (runs.created_ms if keeps_place else stopped_ms)
    assert runs.created_ms == job(**HELD).created_ms


async def test_one_that_has_no_pods_at_all_is_not_ready_either():
    at = Bench()
    at.start()

    assert len(of(at.turn(after_ms=10_000), StopJob)) == 1


async def test_once_too_often_it_stays_stopped_and_says_how_it_comes_back():
    at = Bench()
    first = at.start()
    (stop,) = of(at.turn(after_ms=10_000), StopJob)
    at.stopped(first, stop)
    second = at.start(after_ms=20_000)
    (stop,) = of(at.turn(after_ms=10_000), StopJob)
    at.stopped(second, stop)
    ((code, message),) = at.said(at.turn(after_ms=1_000))

    assert stop.deactivate
    assert code == "Deactivated"
    assert message == (
        "stopped by waitForPodsReady, since its pods were not ready in time once too often; "
        "remove the annotation cohort-extender.io/active to queue it again"
    )


async def test_ready_pods_and_those_that_have_succeeded_are_enough():
    at = Bench()
    write = at.start()
    at.has_pods(write, "a", ready=True)
    at.see(admitted(write, **{**at.changes, "status": {"active": 1, "ready": 1, "succeeded": 1}}))

    assert of(at.turn(after_ms=60_000), StopJob) == []


async def test_a_stop_that_is_refused_is_tried_again():
    at = Bench()
    write = at.start()
    (stop,) = of(at.turn(after_ms=10_000), StopJob)
    at.driver.refused(stop, "invalid: 403 no")
    at.has_pods(write, "a")

    assert of(at.turn(), StopJob) == []
    assert len(of(at.turn(after_ms=60_000), StopJob)) == 1


@pytest.mark.parametrize("kind", ["a Job", "with a pod"])
async def test_its_time_is_over(kind: str):
    labels = {**HELD["metadata__labels"], "kueue.x-k8s.io/max-exec-time-seconds": "30"}
    at = Bench(Times(), metadata__labels=labels)
    write = at.start()
    if kind == "with a pod":
        at.has_pods(write, "a", ready=True)
    early = of(at.turn(after_ms=29_999), StopJob)
    effects = at.turn(after_ms=1)
    (stop,) = of(effects, StopJob)
    at.take(PodGone(PodUid("a")))
    at.stopped(write, stop)

    assert (early, stop.deactivate) == ([], True)
    assert "DeactivatedDueToMaximumExecutionTimeExceeded" in stop.requeue
    assert at.said(at.turn(after_ms=1_000))[0][1].startswith("stopped by its maximum execution time; remove the")


async def test_let_in_again_it_has_all_of_its_time():
    labels = {**HELD["metadata__labels"], "kueue.x-k8s.io/max-exec-time-seconds": "30"}
    at = Bench(Times(), metadata__labels=labels)
    write = at.start()
    (stop,) = of(at.turn(after_ms=30_000), StopJob)
    at.stopped(write, stop)
    at.see(evicted(write, **{**at.changes, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}))
    at.start()

    assert of(at.turn(after_ms=29_999), StopJob) == []
    assert len(of(at.turn(after_ms=1), StopJob)) == 1


async def test_time_before_a_preemption_counts():
    labels = {**HELD["metadata__labels"], "kueue.x-k8s.io/max-exec-time-seconds": "30"}
    at = Bench(Times(), metadata__labels=labels)
    write = at.start()
    at.turn(after_ms=20_000)
    status = {"conditions": [{"type": "Suspended", "status": "True"}]}
    at.see(evicted(write, **{**at.changes, "status": status}))
    at.start()

    assert of(at.turn(after_ms=9_999), StopJob) == []
    assert len(of(at.turn(after_ms=1), StopJob)) == 1
