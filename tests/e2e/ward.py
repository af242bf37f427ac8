"""A ward: a namespace of its own with its queue, for one test; what people there make, and what they see.

Everything is small and on CPUs, of the flavor ``any-node`` unless a test needs nodes of a kind.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.installation import Installation
from tests.e2e.story import CONDITION, Object, T, is_running, pods_path

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
LEAST = "cohort-extender.io/pod-group-min-count"
CLASS = "kueue.x-k8s.io/priority-class"
FOREVER_S = 60.0

_numbers = itertools.count(1)


class Ward:
    """One namespace, its LocalQueues ``main`` (and others) and the ClusterQueues behind them."""

    def __init__(self, hospital: Installation, name: str) -> None:
        self.hospital = hospital
        self.rig = hospital.rig
        self.api = hospital.rig.api
        self.name = name
        self.pods_at = pods_path(name)
        self.cluster_queues: list[str] = []

    # --- queues ---

    async def queue(
        self, local: str = "main", *, cpu: str = "4", flavors: tuple[str, ...] = ("any-node",), **spec: Any
    ) -> str:
        """A LocalQueue with a ClusterQueue of its own; the ClusterQueue's name."""
        name = f"{self.name}-{local}"
        groups = spec.pop("resourceGroups", None) or [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for flavor in flavors
                ],
            }
        ]
        body = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
        await self.api.create(f"{KUEUE}/clusterqueues", _typed("ClusterQueue", name, body))
        self.cluster_queues.append(name)
        await self.local_queue(local, name)
        return name

    async def local_queue(self, name: str, cluster_queue: str) -> None:
        """Another way into a ClusterQueue."""
        body = _typed("LocalQueue", name, {"clusterQueue": cluster_queue}, namespace=self.name)
        await self.api.create(f"{KUEUE}/namespaces/{self.name}/localqueues", body)

    async def edit_queue(self, name: str, **spec: Any) -> None:
        """Change a ClusterQueue."""
        await self.api.patch(f"{KUEUE}/clusterqueues/{name}", {"spec": spec})

    async def edit_local_queue(self, name: str, **spec: Any) -> None:
        """Change a LocalQueue."""
        await self.api.patch(f"{KUEUE}/namespaces/{self.name}/localqueues/{name}", {"spec": spec})

    # --- pods ---

    async def pod(self, name: str, *, cpu: str = "1", **changes: Any) -> Object:
        """Create a pod, see ``pod_of``."""
        return await self.api.create(self.pods_at, pod_of(name, cpu=cpu, **changes))

    async def member(self, name: str, total: int, *, group: str = "team", **changes: Any) -> Object:
        """Create a pod of a group."""
        annotations = {GROUP: group, TOTAL: str(total), **changes.pop("annotations", {})}
        return await self.pod(name, annotations=annotations, **changes)

    async def get(self, name: str) -> Object:
        """A pod as it is now."""
        return await self.api.get(f"{self.pods_at}/{name}")

    async def delete(self, name: str, **options: Any) -> None:
        """Delete a pod."""
        await self.api.delete(f"{self.pods_at}/{name}", **options)

    async def annotate(self, name: str, **marks: str) -> None:
        """Tell the simulated kubelet what becomes of a pod, such as ``finish="true"``."""
        keyed = {f"rig.cohort-extender.io/{key}": value for key, value in marks.items()}
        await self.api.patch(f"{self.pods_at}/{name}", {"metadata": {"annotations": keyed}})

    # --- what is seen ---

    async def until(self, wanted: Callable[[dict[str, Object]], T], what: str, timeout_s: float = FOREVER_S) -> T:
        """Wait until the ward's pods, by name, are as *wanted* says."""
        return await self.api.wait_for(
            self.pods_at,
            lambda pods: wanted({pod["metadata"]["name"]: pod for pod in pods}),
            what=what,
            timeout_s=timeout_s,
        )

    async def runs(self, *names: str) -> None:
        """Wait until these pods run."""
        await self.until(
            lambda pods: all(name in pods and is_running(pods[name]) for name in names), f"{', '.join(names)} running"
        )

    async def gone(self, *names: str) -> None:
        """Wait until these pods do not exist any more."""
        await self.until(lambda pods: not set(names) & set(pods), f"{', '.join(names)} gone")

    async def running(self) -> list[str]:
        """Who runs now."""
        pods = await self.api.list(self.pods_at)
        return sorted(pod["metadata"]["name"] for pod in pods if is_running(pod))

    async def says(self, name: str, reason: str = "", text: str = "") -> str:
        """Wait until the pod's condition gives *reason* with a message that has *text* in it; the message."""

        def told(pods: dict[str, Object]) -> str:
            condition = condition_of(pods.get(name, {}))
            found = condition.get("message", "")
            fits = condition.get("status") == "False" and (not reason or condition["reason"] == reason)
            return found if fits and text in found else ""

        return await self.until(told, f"{name} says {reason} {text}")

    async def events(self, name: str, reason: str, count: int = 1) -> list[Object]:
        """Wait for *count* events about a pod with that reason."""

        def told(events: list[Object]) -> list[Object]:
            found = [one for one in events if one["involvedObject"]["name"] == name and one["reason"] == reason]
            return found if len(found) >= count else []

        at = f"/api/v1/namespaces/{self.name}/events"
        return await self.api.wait_for(at, told, what=f"event {reason} on {name}", timeout_s=FOREVER_S)

    async def status(self, kind: str, name: str, wanted: Callable[[Object], bool], *, namespace: str = "") -> Object:
        """Wait until the status of a queue is as *wanted* says; the status."""
        at = f"{KUEUE}/namespaces/{namespace}/{kind}" if namespace else f"{KUEUE}/{kind}"

        def told(objects: list[Object]) -> Object | None:
            for one in objects:
                status = one.get("status", {})
                if one["metadata"]["name"] == name and wanted(status):
                    return status
            return None

        found = await self.api.wait_for(at, told, what=f"status of {name}", timeout_s=FOREVER_S)
        assert found is not None
        return found


def pod_of(name: str, *, cpu: str = "1", queue: str | None = "main", **changes: Any) -> Object:
    """A pod of one container; *labels*, *annotations* and fields of the spec as given."""
    annotations = {**({QUEUE: queue} if queue else {}), **changes.pop("annotations", {})}
    metadata = {"name": name, "annotations": annotations, "labels": changes.pop("labels", {})}
    metadata.update(changes.pop("metadata", {}))
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "busybox:1.37", "resources": {"requests": {"cpu": cpu}}}],
        **changes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def condition_of(pod: Object) -> Object:
    """Our condition on a pod, empty if there is none."""
    found = [one for one in pod.get("status", {}).get("conditions", ()) if one["type"] == CONDITION]
    return found[0] if found else {}


def _typed(kind: str, name: str, spec: Object, *, namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


@asynccontextmanager
async def opened(hospital: Installation) -> AsyncIterator[Ward]:
    """A new ward without queues; all of it is taken away in the end, the namespace is left empty."""
    ward = Ward(hospital, f"ward-{next(_numbers)}")
    await ward.api.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ward.name}}
    )
    try:
        yield ward
    finally:
        for path in (
            f"/apis/batch/v1/namespaces/{ward.name}/jobs",
            f"/apis/apps/v1/namespaces/{ward.name}/deployments",
            f"/apis/apps/v1/namespaces/{ward.name}/statefulsets",
            f"/apis/apps/v1/namespaces/{ward.name}/daemonsets",
        ):
            await ward.api.delete(path, propagationPolicy="Background")
        await ward.api.delete(f"/apis/policy/v1/namespaces/{ward.name}/poddisruptionbudgets")
        await ward.api.delete(ward.pods_at, grace_s=0)
        await ward.until(lambda pods: not pods, "no pods")
        for name in ward.cluster_queues:
            await ward.api.delete(f"{KUEUE}/clusterqueues/{name}", missing_ok=True)
