"""A small cluster with two flavors and a queue, and Jobs as their authors write them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml

from tests.e2e.installation import MANIFESTS, Installation
from tests.rig import NodePool, Rig
from tests.rig.build import versions

Object = dict[str, Any]
T = TypeVar("T")

LAB = "lab"
QUEUE = "kueue.x-k8s.io/queue-name"
ADMISSION = "cohort-extender.io/admission"
EVICTED = "cohort-extender.io/evicted"
ACTIVE = "cohort-extender.io/active"
MANAGED = "cohort-extender.io/managed"
UNIT_ADMISSION = "cohort-extender.io/unit-admission"
CONDITION = "cohort-extender.io/Admitted"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
CLUSTER_QUEUE = "lab-cq"
JOBS = f"/apis/batch/v1/namespaces/{LAB}/jobs"
PODS = f"/api/v1/namespaces/{LAB}/pods"
FLAVORS = ("blue", "green")
POOLS = tuple(NodePool(color, 4, {"color": color}, capacity={"example.com/gpu": 64, "pods": 500}) for color in FLAVORS)
GPU = "example.com/gpu"
MINOR = int(versions().minor.partition(".")[2])
"""The minor of Kubernetes that the rig runs, by RIG_KUBERNETES."""
OVERLAY = "default" if MINOR >= 36 else "base"
"""Which of our installations is for it."""
RIGHTS = [Path(__file__).parent / "crds" / "widget-rights.yaml"]


def job(
    name: str,
    *,
    pods: int = 2,
    gpus: int = 1,
    queue: str = "lab",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    pod_annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Job of *pods* pods with *gpus* each, in a queue by its label."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": LAB,
            "labels": {**({QUEUE: queue} if queue else {}), **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": pod_annotations or {}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox:1.37",
                            "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}},
                        }
                    ],
                },
            },
            **spec,
        },
    }


def annotation(found: Object, key: str) -> str | None:
    """What the annotation *key* says."""
    text: str | None = (found["metadata"].get("annotations") or {}).get(key)
    return text


def is_running(pod: Object) -> bool:
    """Whether a pod runs and is not on its way out."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_admitted(found: Object) -> bool:
    """Whether the Job has an admission and runs."""
    return annotation(found, ADMISSION) is not None and not found["spec"].get("suspend", False)


def reason_of(found: Object) -> tuple[str, str]:
    """The reason and message of our condition."""
    for condition in found["status"].get("conditions", ()):
        if condition["type"] == CONDITION:
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


class Lab:
    """What a test does in the lab and what it waits for."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.rig = installation.rig
        self.api = installation.rig.api

    async def set_up(self, quotas: dict[str, int] | None = None) -> None:
        """Namespace, flavors, a ClusterQueue and a LocalQueue."""
        await self.api.create("/api/v1/namespaces", {"metadata": {"name": LAB}})
        for color in FLAVORS:
            toleration = {"key": "color", "operator": "Equal", "value": color, "effect": "NoSchedule"}
            spec = {"nodeLabels": {"color": color}, "tolerations": [toleration]}
            flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": color}}
            await self.api.create(f"{KUEUE}/resourceflavors", {**flavor, "spec": spec})
        await self.quota(**(quotas or {"blue": 4, "green": 4}))
        local = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "lab", "namespace": LAB},
            "spec": {"clusterQueue": CLUSTER_QUEUE},
        }
        await self.api.create(f"{KUEUE}/namespaces/{LAB}/localqueues", local)

    async def quota(self, **nominal: int) -> None:
        """Give the ClusterQueue these GPUs by flavor, in this order."""
        flavors = [
            {"name": color, "resources": [{"name": GPU, "nominalQuota": str(gpus)}]} for color, gpus in nominal.items()
        ]
        found = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": CLUSTER_QUEUE},
            "spec": {
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
            },
        }
        await self.api.patch(f"{KUEUE}/clusterqueues/{CLUSTER_QUEUE}", found, kind="apply")

    async def priority(self, name: str, value: int) -> None:
        """A WorkloadPriorityClass."""
        found = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": value}
        await self.api.patch(
            f"{KUEUE}/workloadpriorityclasses/{name}", {**found, "metadata": {"name": name}}, kind="apply"
        )

    async def stop_queue(self, policy: str) -> None:
        """Hold, drain or resume the ClusterQueue."""
        await self.api.patch(f"{KUEUE}/clusterqueues/{CLUSTER_QUEUE}", {"spec": {"stopPolicy": policy}})

    async def submit(self, found: Object) -> Object:
        """Create a Job."""
        return await self.api.create(JOBS, found)

    async def job(self, name: str) -> Object:
        """The Job as it is now."""
        return await self.api.get(f"{JOBS}/{name}")

    async def until_job(self, name: str, wanted: Callable[[Object], T], what: str, timeout_s: float = 30.0) -> Object:
        """Wait until the Job is as *wanted* says; the Job."""

        def found(jobs: list[Object]) -> list[Object]:
            return [one for one in jobs if one["metadata"]["name"] == name and wanted(one)]

        (one,) = await self.api.wait_for(JOBS, found, what=f"{name}: {what}", timeout_s=timeout_s)
        return one

    async def admitted(self, name: str) -> Object:
        """Wait until the Job is admitted."""
        return await self.until_job(name, is_admitted, "admitted")

    async def until_pods(self, wanted: Callable[[list[Object]], T], what: str, timeout_s: float = 30.0) -> T:
        """Wait until the pods of the lab are as *wanted* says."""
        return await self.api.wait_for(PODS, wanted, what=what, timeout_s=timeout_s)

    async def running(self, name: str, count: int) -> list[Object]:
        """Wait until exactly *count* pods of the Job run; the pods."""

        def enough(pods: list[Object]) -> list[Object] | bool:
            found = [pod for pod in pods_of(pods, name) if is_running(pod)]
            return (found or True) if len(found) == count else False

        found = await self.until_pods(enough, f"{count} pods of {name} run")
        return found if isinstance(found, list) else []

    async def used(self) -> dict[str, int]:
        """GPUs of the ClusterQueue in use, by flavor, as its status says."""
        found = await self.api.get(f"{KUEUE}/clusterqueues/{CLUSTER_QUEUE}")
        return {
            flavor["name"]: sum(int(resource["total"]) for resource in flavor["resources"])
            for flavor in found.get("status", {}).get("flavorsUsage", ())
        }

    async def until_used(self, **want: int) -> None:
        """Wait until the ClusterQueue's status says that this much is in use."""

        def told(queues: list[Object]) -> bool:
            for found in queues:
                if found["metadata"]["name"] == CLUSTER_QUEUE:
                    usage = found.get("status", {}).get("flavorsUsage", ())
                    used = {one["name"]: sum(int(each["total"]) for each in one["resources"]) for one in usage}
                    return all(used.get(name) == count for name, count in want.items())
            return False

        await self.api.wait_for(f"{KUEUE}/clusterqueues", told, what=f"usage {want}", timeout_s=30.0)

    async def clear(self) -> None:
        """Delete all that was made, and wait until nothing is in use."""
        await self.api.delete(JOBS, propagationPolicy="Background")
        await self.api.delete(PODS, grace_s=0)
        await self.api.wait_for(JOBS, lambda jobs: not jobs, what="no jobs", timeout_s=60.0)
        await self.api.wait_for(PODS, lambda pods: not pods, what="no pods", timeout_s=60.0)
        await self.quota(blue=4, green=4)
        await self.stop_queue("None")
        await self.until_used(blue=0, green=0)


def pods_of(pods: list[Object], name: str) -> list[Object]:
    """Those that the Job *name* made."""
    return [pod for pod in pods if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name]


def as_json(text: str | None) -> Object:
    """An annotation's JSON."""
    found: Object = orjson.loads(text or "{}")
    return found


class WithKinds(Installation):
    """The product with components for more kinds, whose webhooks are served on this machine's address too."""

    components: tuple[str, ...] = ()

    def _with_components(self) -> Path:
        directory = self._write_overlay()
        file = directory / "kustomization.yaml"
        kustomization = yaml.safe_load(file.read_text())
        where = [os.path.relpath(MANIFESTS / "components" / one, directory.resolve()) for one in self.components]
        file.write_text(yaml.safe_dump({**kustomization, "components": where}))
        return directory

    async def _apply(self) -> None:
        directory = self._with_components()
        built = await self.rig.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", directory)
        found = [one for one in yaml.safe_load_all(built) if one]
        for hook in [hook for one in found for hook in one.get("webhooks", ())]:
            service = hook["clientConfig"].pop("service", None)
            if service is not None:
                hook["clientConfig"]["url"] = f"https://127.0.0.1:{self.webhook_port}{service['path']}"
        for rights in RIGHTS:
            found += [one for one in yaml.safe_load_all(rights.read_text()) if one]
        await self.rig.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(found))
        await self.rig.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


@asynccontextmanager
async def opened(
    *,
    overlay: str = OVERLAY,
    settings: Object | None = None,
    pools: tuple[NodePool, ...] = POOLS,
    components: Sequence[str] = (),
) -> AsyncIterator[Lab]:
    """A rig with the product installed and the lab set up."""
    async with Rig(nodes=pools, scheduler=False) as rig:
        installation = WithKinds(rig, overlay=overlay, settings=settings)
        installation.components = tuple(components)
        await installation.install()
        lab = Lab(installation)
        await lab.set_up()
        yield lab


async def a_while(seconds: float = 2.0) -> None:
    """Time in which nothing may happen: only to show that nothing does."""
    await asyncio.sleep(seconds)
