"""What the product is doing when something breaks: an admission, an eviction, a group half way in.

A scene begins, and is caught at one step by the leader's proxy. After the fault it must end as if nothing had happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

from tests.e2e.installation import Replica
from tests.faults.auditor import ADMISSION, Auditor, holds, runs, was_evicted
from tests.faults.lab import LEFT, NOMINAL, RIGHT, TOTAL, Lab, Object, pod
from tests.faults.proxy import Call, Hook, Point, until

WAITING = 2
"""How many pods more than there is room for."""
TERMINATE_S = 3
"""How long a victim takes to go."""
GANG = "kueue.x-k8s.io/pod-group-name"
GANG_SIZE = "kueue.x-k8s.io/pod-group-total-count"


class Step(Enum):
    """Where in a write the fault comes: before the API server has it; it has it but the answer is lost; it has
    answered but no watch has shown it yet."""

    DECIDED = "decided, not written"
    UNANSWERED = "written, answer lost"
    UNSEEN = "answered, not seen by the watch"


def is_admission(call: Call) -> bool:
    """Whether *call* is the PATCH that admits a pod."""
    return call.method == "PATCH" and ADMISSION.encode() in call.body and not call.path.endswith("/status")


def is_eviction(call: Call) -> bool:
    """Whether *call* asks for an eviction."""
    return call.method == "POST" and call.path.endswith("/eviction")


def in_order(pods: Sequence[Object]) -> list[str]:
    """Names of *pods* as their queue has them: the older first, then by UID."""
    return [
        one["metadata"]["name"]
        for one in sorted(pods, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["uid"]))
    ]


def admitted(pods: Sequence[Object]) -> list[str]:
    """Names of the pods that hold quota."""
    return sorted(one["metadata"]["name"] for one in pods if holds(one))


def running(pods: Sequence[Object]) -> list[str]:
    """Names of the pods that run."""
    return sorted(one["metadata"]["name"] for one in pods if runs(one))


class Scene(ABC):
    """Begins, is caught, and says whether it ended well.

    ``decided_s``: when the last decision of what was caught was seen, on the monotonic clock, once ``ends`` has ended.
    """

    skip = 1
    decided_s = 0.0

    def __init__(self, lab: Lab, auditor: Auditor) -> None:
        self.lab = lab
        self.auditor = auditor

    @abstractmethod
    async def prepare(self) -> None:
        """Everything before the moment that counts."""

    @abstractmethod
    async def begin(self) -> None:
        """The moment that counts."""

    def wanted(self, call: Call) -> bool:
        """Whether *call* is one of the writes that count."""
        return is_admission(call)

    @abstractmethod
    async def ends(self) -> None:
        """Wait for the right end, and check what is more than a count."""

    async def caught_at(self, step: Step, leader: Replica) -> Hook:
        """Begin, and hold the leader at *step*."""
        proxy = self.lab.proxy(leader)
        await self.prepare()
        point = Point.AFTER if step is Step.UNANSWERED else Point.BEFORE
        hook = proxy.catch(self.wanted, point, skip=self.skip)
        await self.begin()
        await hook.first()
        if step is Step.UNSEEN:
            proxy.hold_watches("/(pods|jobs)$")
            hook.pass_on()
            await until(_answered(hook), "the answer")
        return hook


class Admission(Scene):
    """Ten pods wait for eight GPUs, and are let in at once; two of eight are in when it breaks."""

    skip = 2

    async def prepare(self) -> None:
        """Ten wait in a held queue."""
        await self.lab.set_stop_policy(LEFT, "Hold")
        await self.lab.submit(LEFT, *(pod(f"p{index}") for index in range(TOTAL + WAITING)))

    async def begin(self) -> None:
        """The queue opens."""
        await self.lab.set_stop_policy(LEFT, "None")

    async def ends(self) -> None:
        """The first eight run, and the others follow in their order when there is room."""
        await self.lab.pods_are(LEFT, lambda pods: len(admitted(pods)) == TOTAL, f"{TOTAL} pods are in")
        self.decided_s = self.auditor.decided_s
        line = in_order(await self.lab.pods(LEFT))
        assert admitted(await self.lab.pods(LEFT)) == sorted(line[:TOTAL])
        assert self.auditor.victims == {}
        await self.lab.pods_are(LEFT, lambda pods: len(running(pods)) == TOTAL, "they run")
        for gone, follows in zip(line[:WAITING], line[TOTAL:], strict=True):
            await self.lab.rig.api.delete(f"/api/v1/namespaces/{LEFT}/pods/{gone}", grace_s=0)
            await self.lab.pods_are(LEFT, lambda pods, name=follows: name in admitted(pods), f"{follows} is in")
        await self.lab.pods_are(LEFT, lambda pods: running(pods) == sorted(line[WAITING:]), "all of them run")


class Eviction(Scene):
    """Left has borrowed all; right wants two of its own back. One victim is told to go when it breaks."""

    skip = 1
    back = 2

    async def prepare(self) -> None:
        """Left runs eight."""
        for index in range(TOTAL):
            await self.lab.submit(LEFT, _slow(f"v{index}"))
        await self.lab.pods_are(LEFT, lambda pods: sum(map(_has_started, pods)) == TOTAL, f"{TOTAL} pods have started")

    async def begin(self) -> None:
        """Right comes."""
        await self.lab.submit(RIGHT, *(pod(f"r{index}") for index in range(self.back)))

    def wanted(self, call: Call) -> bool:
        """The evictions."""
        return is_eviction(call)

    async def ends(self) -> None:
        """Right runs two, and exactly two are gone."""
        await self.lab.pods_are(RIGHT, lambda pods: len(running(pods)) == self.back, "right runs what it wants")
        await self.lab.pods_are(LEFT, lambda pods: len(running(pods)) == len(pods), "victims are gone")
        self.decided_s = self.auditor.decided_s
        assert not any(map(was_evicted, await self.lab.pods(LEFT)))
        assert len(running(await self.lab.pods(LEFT))) == TOTAL - self.back
        assert len(self.auditor.victims) == self.back


class Gang(Scene):
    """A group of four has one member in when it breaks, and ten others wait behind it."""

    skip = 1
    size = NOMINAL

    async def prepare(self) -> None:
        """All but one of the group are there."""
        await self.lab.submit(RIGHT, *(self._member(index) for index in range(self.size - 1)))

    async def begin(self) -> None:
        """The last member comes, and others behind it."""
        await self.lab.submit(RIGHT, self._member(self.size - 1))
        await self.lab.submit(LEFT, *(pod(f"p{index}") for index in range(TOTAL)))

    def wanted(self, call: Call) -> bool:
        """The group's admissions."""
        return is_admission(call) and f"/namespaces/{RIGHT}/" in call.path

    async def ends(self) -> None:
        """All of the group run, and the others have what is left."""
        await self.lab.pods_are(RIGHT, lambda pods: len(running(pods)) == self.size, "the whole group runs")
        await self.lab.pods_are(LEFT, lambda pods: len(running(pods)) == TOTAL - self.size, "the rest is used")
        self.decided_s = self.auditor.decided_s
        assert self.auditor.victims == {}
        assert sum(map(holds, await self.lab.pods(LEFT))) == TOTAL - self.size

    def _member(self, index: int) -> Object:
        return pod(f"g{index}", **{GANG: "gang", GANG_SIZE: str(self.size)})


class Job(Gang):
    """A Job of four pods is started as a whole, and eight others wait behind it."""

    skip = 0

    async def prepare(self) -> None:
        """The others wait in a held queue."""
        await self.lab.set_stop_policy(LEFT, "Hold")
        await self.lab.submit(LEFT, *(pod(f"p{index}") for index in range(TOTAL)))

    async def begin(self) -> None:
        """The Job comes."""
        await self.lab.rig.api.create(f"/apis/batch/v1/namespaces/{RIGHT}/jobs", job("job", self.size))

    async def ends(self) -> None:
        """The Job's pods run, and the others have what is left."""
        await self.lab.pods_are(RIGHT, lambda pods: len(running(pods)) == self.size, "the whole Job runs")
        decided_s = self.auditor.decided_s
        await self.lab.set_stop_policy(LEFT, "None")
        await super().ends()
        self.decided_s = decided_s

    def wanted(self, call: Call) -> bool:
        """The start of the Job."""
        return is_admission(call) and call.path.endswith(f"/namespaces/{RIGHT}/jobs/job")


def job(name: str, size: int) -> Object:
    """A Job of *size* pods, all at once."""
    labels = {"kueue.x-k8s.io/queue-name": "queue"}
    template = pod("unused")
    spec = template["spec"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"parallelism": size, "completions": size, "template": {"spec": spec}},
    }


def _answered(hook: Hook) -> Callable[[], Awaitable[bool]]:
    async def answered() -> bool:
        return all(call.status for call in hook.caught)

    return answered


def _has_started(one: Object) -> bool:
    return one["status"].get("phase") == "Running"


def _slow(name: str) -> Object:
    return pod(name, **{"rig.cohort-extender.io/terminate-seconds": str(TERMINATE_S)})


SCENES = {"admission": Admission, "eviction": Eviction, "gang": Gang, "Job": Job}
