"""The hospital's night and day, step by step, as a person with kubectl would see it.

Each step does what its people do and waits for what they would see; it answers the numbers that the story is about.
Tests assert them, the demo tells them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.e2e.installation import HOSPITAL, Installation

Object = dict[str, Any]
T = TypeVar("T")

GATE = "cohort-extender.io/admission"
ADMISSION = "cohort-extender.io/admission"
CONDITION = "cohort-extender.io/Admitted"
GPU = "nvidia.com/gpu"
RESEARCH, CLINICAL, TESTING = "research", "clinical", "testing"
GPUS = 100
STEP_S_MAX = 60.0


def pods_path(namespace: str) -> str:
    """Where the pods of *namespace* are."""
    return f"/api/v1/namespaces/{namespace}/pods"


def is_running(pod: Object) -> bool:
    """Whether a pod runs and is not on its way out."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_waiting(pod: Object) -> bool:
    """Whether our gate holds the pod."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", ()))


def uses_gpus(pod: Object) -> bool:
    """Whether a pod takes up room: it has a node, and its containers have not all ended."""
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


def names(pods: Sequence[Object]) -> list[str]:
    """Their names, sorted."""
    return sorted(pod["metadata"]["name"] for pod in pods)


def reason_of(pod: Object) -> tuple[str, str]:
    """The reason and message of our condition, empty if there is none."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == CONDITION and condition["status"] == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


def cpu_pod(name: str, queue: str, cpu: str, **annotations: str) -> Object:
    """A pod of the testing team."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"kueue.x-k8s.io/queue-name": queue, **annotations}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1.37", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


@dataclass(frozen=True)
class Arrival:
    """What a clinical pod's arrival did: how long it took, whom it displaced, what the replacement is told."""

    seconds: float
    evicted: list[str]
    waiting: str
    reason: str
    message: str


class Story:
    """Steps on an installed hospital."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.rig = installation.rig
        self.api = installation.rig.api

    async def pods(self, namespace: str) -> list[Object]:
        """All pods of a namespace."""
        return await self.api.list(pods_path(namespace))

    async def until(
        self, namespace: str, wanted: Callable[[list[Object]], T], what: str, timeout_s: float = STEP_S_MAX
    ) -> T:
        """Wait until the pods of *namespace* are as *wanted* says."""
        return await self.api.wait_for(pods_path(namespace), wanted, what=what, timeout_s=timeout_s)

    async def running(self, namespace: str, count: int, **options: float) -> list[Object]:
        """Wait until exactly *count* pods run; they are answered."""

        def enough(pods: list[Object]) -> list[Object]:
            found = [pod for pod in pods if is_running(pod)]
            return found if len(found) == count else []

        return await self.until(namespace, enough, f"{count} pods running", **options)

    async def gpus_in_use(self) -> int:
        """GPUs of the cohort's flavor that pods hold now."""
        pods = [*await self.pods(RESEARCH), *await self.pods(CLINICAL)]
        return sum(uses_gpus(pod) for pod in pods)

    # --- the steps ---

    async def night(self) -> list[Object]:
        """Research fills the hospital with borrowed GPUs."""
        await self.installation.apply(HOSPITAL / "workloads" / "training-job.yaml")
        return await self.running(RESEARCH, GPUS)

    async def clinical_arrives(self) -> Arrival:
        """A clinical pod arrives in a full hospital."""
        before = {pod["metadata"]["uid"]: pod for pod in await self.pods(RESEARCH)}
        began = asyncio.get_running_loop().time()  # so kubectl and the Deployment controller are in it
        await self.installation.apply(HOSPITAL / "workloads" / "clinical-api.yaml")
        await self.running(CLINICAL, 1)
        seconds = asyncio.get_running_loop().time() - began

        def replaced(pods: list[Object]) -> list[Object]:
            return [pod for pod in pods if is_waiting(pod) and reason_of(pod)[1]]

        (waiting,) = await self.until(RESEARCH, replaced, "the replacement says why it waits")
        now = {pod["metadata"]["uid"] for pod in await self.pods(RESEARCH) if is_running(pod)}
        evicted = names([pod for uid, pod in before.items() if uid not in now])
        return Arrival(seconds, evicted, waiting["metadata"]["name"], *reason_of(waiting))

    async def contention(self, *, clinical: int = 80) -> tuple[int, int]:
        """Both divisions want more than there is; the numbers that run when it has settled."""
        scale = {"spec": {"replicas": clinical}}
        await self.api.patch(f"/apis/apps/v1/namespaces/{CLINICAL}/deployments/ldct-api", scale)
        return await self.settled()

    async def settled(self, *, quiet_s: float = 3.0, timeout_s: float = STEP_S_MAX) -> tuple[int, int]:
        """Wait until nothing has changed for *quiet_s* and every GPU is in use: clinical and research pods running."""
        loop = asyncio.get_running_loop()
        deadline, last, since = loop.time() + timeout_s, (-1, -1), loop.time()
        while True:
            counts = await self._running_counts()
            if counts != last:
                last, since = counts, loop.time()
            if sum(counts) == GPUS and loop.time() - since >= quiet_s:
                return counts
            if loop.time() > deadline:
                raise TimeoutError(f"not settled after {timeout_s:g} s: clinical {last[0]}, research {last[1]}")
            await asyncio.sleep(0.25)

    async def _running_counts(self) -> tuple[int, int]:
        clinical, research = await self.pods(CLINICAL), await self.pods(RESEARCH)
        return sum(map(is_running, clinical)), sum(map(is_running, research))

    async def line_up(self, queue: str) -> dict[str, bool]:
        """Three pods in a queue of 4 CPUs: one of 3 that runs, a big one of 4, a small one of 1. Who runs?"""
        for name, cpu in (("first", "3"), ("big", "4"), ("small", "1")):
            pod = cpu_pod(f"{queue}-{name}", queue, cpu)
            await self.api.create(pods_path(TESTING), pod)
            if name == "first":
                await self.until(TESTING, _runs(f"{queue}-first"), "the first pod runs")
            else:
                await asyncio.sleep(1.1)  # creation times have whole seconds; the order of arrival is the point
        await self.until(TESTING, _says(f"{queue}-big"), "the big pod says why it waits")
        if queue == "emergency":
            await self.until(TESTING, _runs(f"{queue}-small"), "the small pod passes the big one")
        else:
            await self.until(TESTING, _says(f"{queue}-small"), "the small pod says why it waits")
        pods = {pod["metadata"]["name"]: pod for pod in await self.pods(TESTING)}
        return {name: is_running(pods[f"{queue}-{name}"]) for name in ("first", "big", "small")}

    async def clear(self) -> None:
        """Everybody goes home: no workload, no pod."""
        await self.api.delete(f"/apis/apps/v1/namespaces/{CLINICAL}/deployments/ldct-api", missing_ok=True)
        await self.api.delete(
            f"/apis/batch/v1/namespaces/{RESEARCH}/jobs/night-training",
            missing_ok=True,
            propagationPolicy="Background",
        )
        for namespace in (TESTING, CLINICAL, RESEARCH):
            await self.api.delete(pods_path(namespace), grace_s=0)
            await self.until(namespace, lambda pods: not pods, "no pods")


def _runs(name: str) -> Callable[[list[Object]], bool]:
    return lambda pods: any(pod["metadata"]["name"] == name and is_running(pod) for pod in pods)


def _says(name: str) -> Callable[[list[Object]], bool]:
    return lambda pods: any(pod["metadata"]["name"] == name and reason_of(pod)[1] for pod in pods)
