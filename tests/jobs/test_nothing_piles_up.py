"""Whatever a Job's life was, nothing is remembered of it and its pods once they are gone and time has passed."""

import msgspec
import pytest

from extender.jobs.shelf import Shelf
from extender.model.events import ClusterQueueSeen, FlavorSeen, LocalQueueSeen, NamespaceSeen, PodGone, PodSeen
from extender.model.jobs import Job, JobGone, JobSeen, StartJob
from extender.model.names import ClusterQueueName, FlavorName, LocalQueueName, Namespace, PodUid
from extender.model.pods import Owner
from extender.model.quota import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from tests.app.desk import Desk, of
from tests.jobs.build import GPU, KINDS, admitted, job, unit_pod
from tests.support.held import held

DAY_MS = 86_400_000
BLUE, LAB = FlavorName("blue"), Namespace("lab")


@pytest.fixture
def at():
    made = Desk(books=Shelf(KINDS))
    groups = (ResourceGroup((GPU,), (FlavorQuotas(BLUE, ((GPU, Quota(8)),)),)),)
    queue = ClusterQueue(ClusterQueueName("lab-cq"), resource_groups=groups, namespace_selector=Selector())
    local = LocalQueue(LAB, LocalQueueName("lab"), queue.name)
    made.take(FlavorSeen(ResourceFlavor(BLUE)), NamespaceSeen(LAB, ()), ClusterQueueSeen(queue), LocalQueueSeen(local))
    return made


def see(at: Desk, found: Job) -> Job:
    """A Job is seen, at a newer version."""
    shown = msgspec.structs.replace(found, resource_version=str(at.now_ms))
    at.take(JobSeen(shown))
    return shown


def live(at: Desk, number: int, *, runs: bool) -> None:
    """A Job comes, is started, perhaps runs its pods to their end, and goes."""
    who = {"metadata__uid": f"u{number}", "metadata__name": f"train-{number}"}
    shown = see(at, job(**who))
    for write in of(at.turn(after_ms=10), StartJob):
        if runs:
            at.driver.done(write)
            shown = see(at, admitted(write, **who))
            unit = dict(write.templates[0].annotations)["cohort-extender.io/unit-admission"]
            owner = Owner("Job", f"train-{number}", f"u{number}")
            pods = [unit_pod(f"pod-{number}-{index}", unit=unit, owner=owner) for index in range(4)]
            at.take(*map(PodSeen, pods))
            at.turn(after_ms=10)
            at.take(*(PodSeen(msgspec.structs.replace(pod, phase="Succeeded")) for pod in pods))
            at.turn(after_ms=10)
            at.take(*(PodGone(PodUid(pod.uid)) for pod in pods))
    at.turn(after_ms=10)
    at.take(JobGone(shown.uid))
    at.turn(after_ms=10)


def rounds(at: Desk, numbers: range, **how: bool) -> dict[str, int]:
    """So many such lives; what is held a day later."""
    for number in numbers:
        live(at, number, **how)
    for _ in range(200):
        at.turn(after_ms=DAY_MS // 100)
    return held(at.driver)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"runs": True}, id="of Jobs that run"),
        pytest.param({"runs": False}, id="of Jobs whose start is never seen"),
    ],
)
async def test_nothing_piles_up(at, how):
    few, many = rounds(at, range(10), **how), rounds(at, range(10, 60), **how)

    ours = {way: count for way, count in many.items() if "Meter" not in way}  # the double's own notes
    assert {way: (few.get(way, 0), count) for way, count in ours.items() if count > few.get(way, 0) + 5} == {}
